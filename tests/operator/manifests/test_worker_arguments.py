"""The worker and the gateway understand what the operator tells them."""

import pytest
from distserve_testing.deployments import SETTINGS, deployment

from distserve_operator.manifests.gateway_deployment import build_gateway_deployment
from distserve_operator.manifests.worker_pod import DRAIN_SECONDS, build_worker_pod
from distserve_operator.manifests.worker_template import worker_template
from distserve_proto.contract import Role
from distserve_worker.gateway.settings import parse_settings
from distserve_worker.server.arguments import parse_arguments


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_a_worker_reads_its_arguments(role: Role) -> None:
    fleet = deployment()
    pod = build_worker_pod(fleet, worker_template(fleet, role, SETTINGS), 0, 0)
    arguments = [a.replace("$(DISTSERVE_POD_IP)", "10.0.0.7") for a in pod["spec"]["containers"][0]["args"]]
    config = parse_arguments(arguments, {})
    assert config.role is role
    assert config.model == "/models/smollm2.gguf"
    assert (config.served_name, config.dtype, config.max_model_length) == ("smollm2", "FP32", 2048)
    assert config.kv_cache_bytes == 1024**3
    assert config.advertise_host == "10.0.0.7"
    assert config.drain_seconds == DRAIN_SECONDS


def test_a_gateway_reads_its_arguments() -> None:
    body = build_gateway_deployment(deployment("x" * 100), SETTINGS.gateway)
    pod = body["spec"]["template"]
    settings = parse_settings(pod["spec"]["containers"][0]["args"])
    assert settings.model == "/models/smollm2.gguf"
    assert settings.served_name == "smollm2"
    assert settings.namespace == "default"
    assert settings.deployment == pod["metadata"]["labels"]["distserve.io/deployment"]
    assert settings.drain_seconds < pod["spec"]["terminationGracePeriodSeconds"]
