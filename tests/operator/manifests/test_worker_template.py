"""Which changes roll worker pods."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from distserve_testing.deployments import SETTINGS, deployment, gpu_resource, placed, workloads

from distserve_operator.api.deployment import DistServeDeployment, Security
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.manifests.worker_template import worker_template
from distserve_proto.contract import Role

Change = Callable[[DistServeDeployment], DistServeDeployment]


def hash_of(fleet: DistServeDeployment, settings: WorkloadSettings = SETTINGS, role: Role = Role.PREFILL) -> str:
    return worker_template(fleet, role, settings).hash


def with_shapes(**roles: Any) -> Change:
    """Another shape of these roles, out of the same resource."""
    return lambda d: replace(d, placement=deployment(**roles).placement)


def test_the_hash_of_a_spec_is_the_same_in_every_operator_version() -> None:
    """B26: a change of these constants rolls every fleet in the field when the operator is upgraded."""
    assert hash_of(deployment()) == "34447f87"
    assert hash_of(placed(gpu_resource()), role=Role.DECODE) == "41970728"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: replace(d, model=replace(d.model, uri="pvc://models/other.gguf")),
        lambda d: replace(d, model=replace(d.model, dtype="BF16")),
        lambda d: replace(d, model=replace(d.model, served_name="other")),
        lambda d: replace(d, model=replace(d.model, max_model_length=None)),
        lambda d: replace(d, cluster=replace(d.cluster, memory_per_device=2**32)),
        lambda d: replace(d, cluster=replace(d.cluster, cores_per_device=2)),
        with_shapes(prefill={"tp": 2}),
        with_shapes(prefill={"pp": 2}),
        with_shapes(prefill={"maxBatchTokens": 1024}),
    ],
)
def test_what_a_pod_is_made_of_rolls_it(change: Change) -> None:
    """B26."""
    assert hash_of(change(deployment())) != hash_of(deployment())


@pytest.mark.parametrize(
    "change",
    [
        lambda d: replace(d, generation=9),
        lambda d: replace(d, cluster=replace(d.cluster, max_devices=50)),
        lambda d: replace(d, gateway=replace(d.gateway, replicas=3)),
        lambda d: replace(d, security=Security(isolate_prefixes=True)),
        with_shapes(prefill=5),
        with_shapes(decode={"tp": 2}),
    ],
)
def test_nothing_else_does(change: Change) -> None:
    """B26: not even a change of the other role."""
    assert hash_of(change(deployment())) == hash_of(deployment())


@pytest.mark.parametrize(
    "hub", [{"tokenSecret": {"name": "b"}}, {"tokenSecret": {"name": "a", "key": "k"}}, {"cacheClaim": "c"}]
)
def test_another_token_or_cache_of_the_hub_rolls_a_pod(hub: dict[str, Any]) -> None:
    """B26."""
    hashes = [hash_of(deployment(model={"uri": "hf://a/b", "hub": each})) for each in ({}, hub)]
    assert hashes[0] != hashes[1]
    usual = {"tokenSecret": {"name": "a"}}
    assert hash_of(deployment(model={"uri": "hf://a/b", "hub": usual})) not in hashes


def test_the_chunks_of_a_colocated_instance_roll_it() -> None:
    """B26."""
    whole, cut = (deployment(colocated=shape) for shape in ({}, {"chunkTokens": 256}))
    assert hash_of(whole, role=Role.COLOCATED) != hash_of(cut, role=Role.COLOCATED)


def test_the_operators_flags_roll_nothing() -> None:
    """B26: an upgrade of the operator brings other images."""
    changed = workloads("distserve/worker:2", "distserve/gateway:2", "Always", ("key",), "other")
    assert hash_of(deployment(), changed) == hash_of(deployment())


def test_the_roles_have_different_templates() -> None:
    both, one = deployment(), deployment(colocated=1)
    hashes = [hash_of(both, role=Role.PREFILL), hash_of(both, role=Role.DECODE), hash_of(one, role=Role.COLOCATED)]
    assert len(set(hashes)) == 3
