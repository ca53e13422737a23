"""Which changes roll worker pods."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from distserve_testing.deployments import SETTINGS, deployment, gpu_resource, placed, workloads

from distserve_operator.api.deployment import DistServeDeployment, Shape
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.manifests.worker_template import worker_template
from distserve_proto.contract import Role

Change = Callable[[DistServeDeployment], DistServeDeployment]


def hash_of(fleet: DistServeDeployment, settings: WorkloadSettings = SETTINGS, role: Role = Role.PREFILL) -> str:
    return worker_template(fleet, role, settings).hash


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
        lambda d: replace(d, placement=replace(d.placement, prefill=Shape(2, 1, 1))),
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
        lambda d: replace(d, placement=replace(d.placement, prefill=Shape(1, 1, 5))),
        lambda d: replace(d, placement=replace(d.placement, decode=Shape(2, 1, 1))),
    ],
)
def test_nothing_else_does(change: Change) -> None:
    """B26: not even a change of the other role."""
    assert hash_of(change(deployment())) == hash_of(deployment())


def test_the_operators_flags_roll_nothing() -> None:
    """B26: an upgrade of the operator brings other images."""
    changed = workloads("distserve/worker:2", "distserve/gateway:2", "Always", ("key",), "other")
    assert hash_of(deployment(), changed) == hash_of(deployment())


def test_the_roles_have_different_templates() -> None:
    assert hash_of(deployment(), role=Role.PREFILL) != hash_of(deployment(), role=Role.DECODE)
