"""Single decisions about worker pods."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from distserve_testing.deployments import SETTINGS, deployment
from distserve_testing.kubernetes_world import World, settle

from distserve_operator.observed.pods import WorkerPod
from distserve_operator.observed.problems import Problem
from distserve_operator.plan.actions import Action, CreatePod, DeletePod
from distserve_proto.contract import Role


def settled(**options: Any) -> World:
    world = World(deployment(**options), SETTINGS)
    settle(world)
    return world


def pod_of(world: World, role: Role, instance: int = 0) -> WorkerPod:
    (found,) = [pod for pod in world.pods.values() if (pod.role, pod.instance) == (role, instance)]
    return found


def change(world: World, pod: WorkerPod, **fields: object) -> None:
    world.pods[pod.uid] = replace(pod, **fields)  # type: ignore[arg-type]


def fail(world: World, role: Role) -> WorkerPod:
    pod = pod_of(world, role)
    change(world, pod, ended=True, ready=False, ended_at=world.now)
    return pod


def pod_actions(world: World) -> list[Action]:
    return [action for action in world.plan().actions if isinstance(action, CreatePod | DeletePod)]


def renew(world: World) -> None:
    world.deployment = replace(world.deployment, model=replace(world.deployment.model, uri="pvc://models/new.gguf"))


def test_an_evicted_pod_is_replaced_by_the_next_attempt() -> None:
    """B29."""
    world = settled()
    fail(world, Role.DECODE)
    (action,) = pod_actions(world)
    assert isinstance(action, CreatePod)
    assert (action.role, action.instance, action.attempt) == (Role.DECODE, 0, 1)


def test_the_failed_pod_goes_when_its_successor_exists() -> None:
    """B29."""
    world = settled()
    failed = fail(world, Role.DECODE)
    world.act(world.plan())
    assert [(a.name, a.uid) for a in pod_actions(world) if isinstance(a, DeletePod)] == [(failed.name, failed.uid)]


def test_pods_that_fail_at_once_are_retried_ever_more_slowly() -> None:
    world = settled()
    delays = []
    for _ in range(5):
        fail(world, Role.PREFILL)
        plan = world.plan()
        delays.append(0.0 if plan.wake_at is None else (plan.wake_at - world.now).total_seconds())
        world.now += timedelta(seconds=delays[-1])
        for _ in range(2):
            world.act(world.plan())
    assert delays == [0, 2, 4, 8, 16]


def test_a_pod_that_served_long_is_replaced_at_once_however_often() -> None:
    world = settled()
    for _ in range(5):
        world.now += timedelta(minutes=30)
        fail(world, Role.PREFILL)
        for _ in range(2):
            assert world.act(world.plan())
        world.tick()
    assert pod_of(world, Role.PREFILL).attempt == 5


def test_a_pod_stuck_on_a_dead_node_is_replaced_without_waiting_for_it() -> None:
    world = settled()
    stuck = pod_of(world, Role.PREFILL)
    change(world, stuck, ready=False, deadline=world.now)
    assert pod_actions(world) == [], "it may still hold its device"
    wake_at = world.plan().wake_at
    assert wake_at is not None
    world.now = wake_at
    (action,) = pod_actions(world)
    assert isinstance(action, CreatePod)
    assert action.attempt == stuck.attempt + 1


def test_a_surge_pod_that_no_node_has_room_for_gets_the_old_ones_place() -> None:
    """B25: a roll without a spare device on any node drains instead of waiting for ever."""
    world = settled(max_devices=3)
    old = pod_of(world, Role.PREFILL)
    renew(world)
    world.act(world.plan())
    (surge,) = [pod for pod in world.pods.values() if not pod.ready]
    change(world, surge, problem=Problem("Unschedulable", "0/1 nodes"))
    plan = world.plan()
    assert world.act(plan) == 0
    assert plan.wake_at is not None
    world.now = plan.wake_at
    assert [a.uid for a in pod_actions(world) if isinstance(a, DeletePod)] == [old.uid]


def test_what_is_missing_comes_before_a_surge() -> None:
    world = settled(max_devices=3)
    fail(world, Role.DECODE)
    renew(world)
    created = [action for action in pod_actions(world) if isinstance(action, CreatePod)]
    assert created[0].role == Role.DECODE


@pytest.mark.parametrize("unready", [0, 1, 2])
def test_scaling_down_keeps_the_wanted_number_ready(unready: int) -> None:
    """B27, B28."""
    world = settled(prefill=3, max_devices=4)
    change(world, pod_of(world, Role.PREFILL, unready), ready=False)
    world.deployment = deployment(prefill=2, max_devices=4)
    doomed = {world.pods[a.uid].instance for a in pod_actions(world) if isinstance(a, DeletePod)}
    assert doomed == ({2} if unready == 2 else set())


def test_a_pod_that_the_operator_did_not_name_is_removed() -> None:
    world = settled()
    stranger = replace(pod_of(world, Role.PREFILL), name="stranger", uid="s", identity=None)
    world.pods["s"] = stranger
    assert [a.uid for a in pod_actions(world) if isinstance(a, DeletePod)] == ["s"]


def test_labels_that_somebody_changed_are_restored_and_the_pod_lives_on() -> None:
    """B31."""
    world = settled()
    pod = pod_of(world, Role.DECODE)
    change(world, pod, labelled=False)
    plan = world.plan()
    assert world.act(plan) == 1
    assert world.pods[pod.uid].labelled
    assert pod_actions(world) == []


def test_a_shape_that_the_engine_cannot_run_changes_nothing_that_exists() -> None:
    world = settled(uri="pvc://models/smollm2-135m.gguf")
    world.deployment = deployment(uri="pvc://models/smollm2-135m.gguf", prefill={"tp": 2}, max_devices=8)
    assert world.plan().actions == ()
