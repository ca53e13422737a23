"""Whatever has happened, repeated plans lead to exactly the pods that are wanted."""

import random
from dataclasses import replace
from typing import Any

import pytest
from distserve_testing.deployments import SETTINGS, deployment, workloads
from distserve_testing.kubernetes_world import World, settle
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_operator.api.deployment import DistServeDeployment
from distserve_proto.contract import Role

ROLES = (Role.PREFILL, Role.DECODE)

shapes = st.fixed_dictionaries({"tp": st.integers(1, 3), "pp": st.integers(1, 2), "replicas": st.integers(1, 3)})
placements = st.one_of(
    st.fixed_dictionaries({"prefill": shapes, "decode": shapes}), st.fixed_dictionaries({"colocated": shapes})
)
fleets = st.builds(lambda roles, spare: spared(spare, **roles), placements, st.integers(0, 3))


def spared(spare: int, **roles: Any) -> DistServeDeployment:
    """A fleet that may take so many devices more than its shape does."""
    fleet = deployment(max_devices=1000, **roles)
    return replace(fleet, cluster=replace(fleet.cluster, max_devices=fleet.placement.devices + spare))


def assert_exact(world: World) -> None:
    shapes = world.deployment.placement.shapes
    found = sorted((pod.role, pod.instance, pod.template_hash) for pod in world.pods.values())
    wanted = sorted((role, i, world.hash_of(role)) for role in shapes for i in range(shapes[role].replicas))
    assert found == wanted
    assert all(pod.ready for pod in world.pods.values())


def changed(world: World, to: DistServeDeployment, tag: str) -> None:
    """Another model, so that every pod is renewed, and another image."""
    world.deployment = replace(to, model=replace(to.model, uri=f"pvc://models/{tag}.gguf"))
    world.settings = workloads(f"distserve/worker:{tag}")


@given(fleets)
def test_a_fresh_deployment_gets_its_pods_and_then_rest(fleet: DistServeDeployment) -> None:
    world = World(fleet, SETTINGS)
    settle(world)
    assert_exact(world)
    assert world.made == sum(shape.replicas for shape in fleet.placement.shapes.values())
    assert world.plan().wake_at is None


@given(fleets, fleets, st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_any_faults_edits_and_kills_of_the_operator_end_in_the_same_pods(
    before: DistServeDeployment, after: DistServeDeployment, same_model: bool, choose: random.Random
) -> None:
    """B24: no duplicate, no orphan. B35: never more devices than allowed."""
    world = World(before, SETTINGS)
    for step in range(30):
        if step == 10:
            changed(world, after, "2")
            if same_model:
                world.deployment = after
        if step == 20:
            world.settings = workloads("distserve/worker:3")
        most, held = world.deployment.cluster.max_devices, world.held()
        world.act(world.plan(), limit=choose.choice([None, 0, 1, 2]))
        assert world.held() <= max(most, held)
        alive = [(p.role, p.instance, p.template_hash) for p in world.pods.values() if p.alive]
        assert len(alive) == len(set(alive))
        match choose.choice(["time", "fault", "nothing"]):
            case "time":
                world.tick()
            case "fault":
                world.disturb(choose)
    settle(world)
    assert_exact(world)
    assert world.held() <= world.deployment.cluster.max_devices


@pytest.mark.parametrize("spare", [0, 1, 2])
@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (2, 1), (3, 3)])
def test_a_roll_keeps_all_instances_ready_with_a_spare_device_and_misses_one_without(
    prefill: int, decode: int, spare: int
) -> None:
    """B28, B26: each pod is replaced exactly once."""
    wanted = deployment(prefill=prefill, decode=decode, max_devices=prefill + decode + spare)
    world = World(wanted, SETTINGS)
    settle(world)
    changed(world, wanted, "2")
    least = {role: world.ready(role) for role in ROLES}
    floor = {role: count - (spare == 0) for role, count in least.items()}
    for _ in range(60):
        world.act(world.plan())
        for role in ROLES:
            assert world.ready(role) >= floor[role]
        assert world.held() <= wanted.cluster.max_devices
        world.tick()
    assert_exact(world)
    assert world.made == 2 * (prefill + decode)


def test_prefill_rolls_before_decode() -> None:
    wanted = deployment(prefill=2, decode=2, max_devices=5)
    world = World(wanted, SETTINGS)
    settle(world)
    changed(world, wanted, "2")
    for _ in range(60):
        world.act(world.plan())
        new = {pod.role for pod in world.pods.values() if pod.template_hash == world.hash_of(Role(pod.role))}
        if Role.DECODE in new:
            break
        world.tick()
    prefill = [pod for pod in world.pods.values() if pod.role == Role.PREFILL]
    assert all(pod.template_hash == world.hash_of(Role.PREFILL) for pod in prefill)


@pytest.mark.parametrize("edit_too", [False, True])
@pytest.mark.parametrize("spare", [0, 1])
def test_a_bad_image_is_mended_by_the_next_one_without_another_gap(spare: int, edit_too: bool) -> None:
    """B25: unhealthy pods go first; the ones that still serve stay until then."""
    wanted = deployment(prefill=2, decode=1, max_devices=3 + spare)
    world = World(wanted, SETTINGS)
    settle(world)
    changed(world, wanted, "bad")
    world.broken = {"distserve/worker:bad"}
    for _ in range(20):
        world.act(world.plan())
        world.tick()
    assert world.ready(Role.PREFILL) == 2 - (spare == 0)
    assert world.ready(Role.DECODE) == 1, "the roll must not go on beyond the first bad pod"
    if edit_too:
        changed(world, wanted, "3")
    else:
        world.settings = workloads("distserve/worker:3")
    settle(world)
    assert_exact(world)
    assert {pod.source for pod in world.pods.values()} == {world.settings.worker}


def test_a_new_image_of_the_operators_flags_replaces_no_pod_that_has_started() -> None:
    """B26: not even one that is not ready for a moment; what is made from then on runs it."""
    world = World(deployment(prefill=2, max_devices=4), SETTINGS)
    settle(world)
    before = dict(world.pods)
    world.settings = workloads("distserve/worker:2", pull_policy="Always", pull_secrets=("key",))
    first, second, *_ = before
    world.pods[first] = replace(before[first], ready=False)
    assert world.act(world.plan()) == 0
    del world.pods[second]
    settle(world)
    assert_exact(world)
    assert len(world.pods.keys() & before.keys()) == 2
    assert {pod.source for uid, pod in world.pods.items() if uid not in before} == {world.settings.worker}


def test_a_pod_that_does_not_say_what_it_was_made_with_is_left_alone() -> None:
    """B31: what took the annotation away would take the next one's away as well."""
    world = World(deployment(), SETTINGS)
    world.act(world.plan())
    world.pods = {uid: replace(pod, source=None) for uid, pod in world.pods.items()}
    world.settings = workloads("distserve/worker:2")
    assert world.act(world.plan()) == 0


def test_a_fleet_that_moves_devices_from_one_role_to_the_other_ends_without_a_spare_device() -> None:
    world = World(deployment(prefill=3, decode=1, max_devices=4), SETTINGS)
    settle(world)
    world.deployment = deployment(prefill=1, decode=3, max_devices=4)
    settle(world)
    assert_exact(world)


def test_two_fleets_in_the_same_state_get_the_same_plan() -> None:
    world = World(deployment(prefill=2, decode=2, max_devices=5), SETTINGS)
    settle(world)
    changed(world, world.deployment, "2")
    assert world.plan() == world.plan()
