"""One shape follows another: other roles, other devices of an instance."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from distserve_testing.deployments import SETTINGS, deployment
from distserve_testing.kubernetes_world import World, settle
from hypothesis import given
from hypothesis import strategies as st

from distserve_operator.api.shape import can_serve
from distserve_operator.observed.problems import Problem
from distserve_operator.plan.actions import CreatePod, DeletePod
from distserve_proto.contract import Role

sizes = st.fixed_dictionaries({"tp": st.integers(1, 3), "replicas": st.integers(1, 3)})
placements = st.one_of(
    st.fixed_dictionaries({"prefill": sizes, "decode": sizes}), st.fixed_dictionaries({"colocated": sizes})
)


def serving(**options: Any) -> World:
    world = World(deployment(**options), SETTINGS)
    settle(world)
    return world


def serves(world: World) -> bool:
    return can_serve({pod.role for pod in world.pods.values() if pod.ready})


def steps(world: World, most: int = 100) -> Iterator[int]:
    """Until nothing more is done."""
    for step in range(most):
        before = dict(world.pods)
        done = world.act(world.plan())
        yield step
        world.tick()
        if done == 0 and world.pods == before:
            return
    raise AssertionError(f"not settled: {sorted(pod.name for pod in world.pods.values())}")


def roles(world: World) -> list[str]:
    return sorted(pod.role for pod in world.pods.values())


@pytest.mark.parametrize(
    ("before", "after", "max_devices"),
    [
        ({"prefill": 1, "decode": 1}, {"colocated": 1}, 3),
        ({"prefill": 1, "decode": 1}, {"colocated": 2}, 3),
        ({"prefill": 2, "decode": 3}, {"colocated": {"tp": 2, "replicas": 3}}, 7),
        ({"colocated": 1}, {"prefill": 1, "decode": 1}, 3),
        ({"colocated": {"tp": 3}}, {"prefill": 2, "decode": 2}, 5),
        ({"prefill": 1, "decode": 1}, {"prefill": {"tp": 3}, "decode": 1}, 5),
        ({"colocated": 3}, {"colocated": {"tp": 3}}, 6),
    ],
)
def test_a_change_of_shape_has_no_gap_where_devices_are_spare(
    before: dict[str, Any], after: dict[str, Any], max_devices: int
) -> None:
    """B28: and never more devices than allowed."""
    world = serving(max_devices=max_devices, **before)
    world.deployment = deployment(max_devices=max_devices, **after)
    for _ in steps(world):
        assert serves(world)
        assert world.held() <= max_devices
    wanted = world.deployment.placement.shapes
    assert roles(world) == sorted(role for role, shape in wanted.items() for _ in range(shape.replicas))


@given(placements, placements)
def test_with_devices_for_both_shapes_there_is_no_gap_and_each_pod_is_made_once(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """B28."""
    world = serving(max_devices=36, **before)
    world.deployment = deployment(max_devices=36, **after)
    made, old = world.made, {pod.name for pod in world.pods.values()}
    for _ in steps(world):
        assert serves(world)
    assert world.made - made == len({pod.name for pod in world.pods.values()} - old)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"prefill": 1, "decode": 1}, {"colocated": {"tp": 2}}),
        ({"colocated": {"tp": 2, "pp": 2}}, {"prefill": 2, "decode": 2}),
        ({"prefill": {"tp": 3}, "decode": 1}, {"prefill": 1, "decode": {"tp": 3}}),
    ],
)
def test_without_a_spare_device_the_earlier_shape_makes_room(before: dict[str, Any], after: dict[str, Any]) -> None:
    """B25: it never waits for ever."""
    world = serving(max_devices=4, **before)
    most = world.deployment.placement.devices
    world.deployment = deployment(max_devices=most, **after)
    for _ in steps(world):
        assert world.held() <= most
    assert serves(world)


def test_prefill_instances_end_before_the_decode_instances_that_take_their_kv() -> None:
    """B27."""
    world = serving(prefill=2, decode=2, max_devices=8)
    world.deployment = deployment(colocated=2, max_devices=8)
    for _ in steps(world):
        left = [pod for pod in world.pods.values() if pod.role == Role.PREFILL]
        leaving = [pod for pod in world.pods.values() if pod.role == Role.DECODE and pod.terminating]
        assert not (left and leaving)
    assert roles(world) == ["colocated", "colocated"]


@pytest.mark.parametrize("max_devices", [3, 4])
def test_a_shape_that_never_gets_ready_leaves_the_earlier_one_serving(max_devices: int) -> None:
    """B25: the next edit mends it."""
    world = serving(max_devices=max_devices)
    good = world.deployment
    world.deployment = deployment(colocated=2, max_devices=max_devices)
    world.broken = {world.hash_of(Role.COLOCATED)}
    for _ in range(20):
        world.act(world.plan())
        assert serves(world)
        world.tick()
    world.deployment = good
    for _ in steps(world):
        assert serves(world)
    assert roles(world) == ["decode", "prefill"]


def test_an_instance_that_no_node_has_room_for_gets_room_after_a_while() -> None:
    """B25: also when only other roles can make it."""
    world = serving(max_devices=8)
    world.deployment = deployment(colocated={"tp": 2}, max_devices=8)
    world.act(world.plan())
    (new,) = [pod for pod in world.pods.values() if pod.role == Role.COLOCATED]
    world.pods[new.uid] = replace(new, problem=Problem("Unschedulable", "0/1 nodes"))
    plan = world.plan()
    assert world.act(plan) == 0
    assert plan.wake_at is not None
    world.now = plan.wake_at
    doomed = [action for action in world.plan().actions if isinstance(action, DeletePod)]
    assert [world.pods[action.uid].role for action in doomed] == ["prefill"]


def test_an_instance_without_a_node_does_not_hurry_the_roll_of_another_role() -> None:
    """B28: one is renewed after the other."""
    world = serving(prefill=2, decode=3, max_devices=9)
    lost = next(pod for pod in world.pods.values() if pod.role == Role.PREFILL)
    world.pods[lost.uid] = replace(lost, ready=False, started=False, problem=Problem("Unschedulable", "0/1 nodes"))
    shapes: dict[str, Any] = {"prefill": 2, "decode": {"tp": 2, "replicas": 3}}
    world.deployment = deployment(max_devices=9, **shapes)
    world.now += timedelta(minutes=5)
    for _ in range(30):
        world.act(world.plan())
        assert world.ready(Role.DECODE) >= 2
        world.tick()
        world.pods[lost.uid] = replace(world.pods[lost.uid], ready=False, problem=Problem("Unschedulable", "0/1"))
    decode = [pod for pod in world.pods.values() if pod.role == Role.DECODE]
    assert [pod.devices for pod in decode] == [2, 2, 2]


def test_scaling_down_keeps_as_many_devices_ready_as_the_new_shape_has() -> None:
    """B28: three small instances are worth one large one."""
    world = serving(colocated=3, max_devices=6)
    world.deployment = deployment(colocated={"tp": 3}, max_devices=6)
    for _ in steps(world):
        assert sum(pod.devices for pod in world.pods.values() if pod.ready) >= 3
    assert [pod.devices for pod in world.pods.values()] == [3]


def test_instances_of_many_devices_are_made_first() -> None:
    """While there are nodes with so many free ones."""
    world = World(deployment(prefill=2, decode={"tp": 2, "pp": 2}, max_devices=6), SETTINGS)
    made = [action.role for action in world.plan().actions if isinstance(action, CreatePod)]
    assert made == [Role.DECODE, Role.PREFILL, Role.PREFILL]


def test_what_ended_of_an_earlier_shape_is_cleaned_up() -> None:
    """B24."""
    world = serving(max_devices=4)
    pod = next(pod for pod in world.pods.values() if pod.role == Role.DECODE)
    world.pods[pod.uid] = replace(pod, ended=True, ready=False, ended_at=world.now)
    world.deployment = deployment(colocated=1, max_devices=4)
    settle(world)
    assert roles(world) == ["colocated"]
