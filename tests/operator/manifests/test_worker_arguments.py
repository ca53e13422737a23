"""The worker and the gateway understand what the operator tells them."""

from typing import Any

import pytest
from distserve_testing.deployments import SETTINGS, deployment

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.manifests.gateway_deployment import build_gateway_deployment
from distserve_operator.manifests.worker_pod import DRAIN_SECONDS, build_worker_pod
from distserve_operator.manifests.worker_template import worker_template
from distserve_proto.contract import WORKER_ROLES, Role
from distserve_worker.gateway.settings import parse_settings
from distserve_worker.server.arguments import WorkerConfig, parse_arguments


def config_of(fleet: DistServeDeployment, role: Role) -> WorkerConfig:
    pod = build_worker_pod(fleet, worker_template(fleet, role, SETTINGS), 0, 0)
    arguments = [a.replace("$(DISTSERVE_POD_IP)", "10.0.0.7") for a in pod["spec"]["containers"][0]["args"]]
    return parse_arguments(arguments, {})


def fleet_for(role: Role, **shape: int) -> DistServeDeployment:
    roles: dict[str, Any] = {str(role): shape}
    return deployment(max_devices=64, **roles)


@pytest.mark.parametrize("role", WORKER_ROLES)
def test_a_worker_reads_its_arguments(role: Role) -> None:
    config = config_of(fleet_for(role), role)
    assert config.role is role
    assert (config.tp, config.pp, config.chunk_tokens) == (1, 1, None)
    assert config.model == "/models/smollm2.gguf"
    assert (config.served_name, config.dtype, config.max_model_length) == ("smollm2", "FP32", 2048)
    assert config.kv_cache_bytes == 1024**3
    assert config.advertise_host == "10.0.0.7"
    assert config.drain_seconds == DRAIN_SECONDS


@pytest.mark.parametrize("role", WORKER_ROLES)
def test_a_worker_of_several_ranks_gets_the_cache_of_all_of_them(role: Role) -> None:
    config = config_of(fleet_for(role, tp=3, pp=2), role)
    assert (config.tp, config.pp) == (3, 2)
    assert config.kv_cache_bytes == 6 * 1024**3


@pytest.mark.parametrize(
    ("role", "shape", "batch", "chunk"),
    [
        (Role.PREFILL, {"maxBatchTokens": 2048}, 2048, None),
        (Role.COLOCATED, {"maxBatchTokens": 2048}, 2048, None),
        (Role.COLOCATED, {"chunkTokens": 1024}, 1024, 1024),
        (Role.COLOCATED, {}, 512, None),
    ],
)
def test_a_worker_learns_the_size_of_its_steps(
    role: Role, shape: dict[str, int], batch: int, chunk: int | None
) -> None:
    """A chunk is never cut to the size of a usual batch."""
    config = config_of(fleet_for(role, **shape), role)
    assert (config.max_batch_tokens, config.chunk_tokens) == (batch, chunk)


@pytest.mark.parametrize("dtype", ["FP32", "FP16", "BF16", "INT8"])
def test_a_worker_knows_every_type_of_the_schema(dtype: str) -> None:
    assert config_of(deployment(model={"uri": "hf://a/b", "dtype": dtype}), Role.DECODE).dtype == dtype


@pytest.mark.parametrize("isolated", [False, True])
def test_a_gateway_reads_its_arguments(isolated: bool) -> None:
    fleet = deployment("x" * 100, security={"isolatePrefixes": isolated})
    body = build_gateway_deployment(fleet, SETTINGS.gateway)
    pod = body["spec"]["template"]
    settings = parse_settings(pod["spec"]["containers"][0]["args"])
    assert settings.isolate_prefixes is isolated
    assert settings.model == "/models/smollm2.gguf"
    assert settings.served_name == "smollm2"
    assert settings.namespace == "default"
    assert settings.deployment == pod["metadata"]["labels"]["distserve.io/deployment"]
    assert settings.drain_seconds < pod["spec"]["terminationGracePeriodSeconds"]
