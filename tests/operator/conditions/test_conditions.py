"""Which condition is what, and why."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from distserve_testing.deployments import SETTINGS, deployment
from distserve_testing.kubernetes_world import START, World, settle

from distserve_operator.conditions.condition import ConditionType, State, Verdict, Verdicts, render
from distserve_operator.conditions.decision import NOT_PLACED
from distserve_operator.conditions.failure import Failure
from distserve_operator.conditions.gateway import is_in_question
from distserve_operator.conditions.overall import verdicts_of
from distserve_operator.conditions.placement import placement_verdict
from distserve_operator.conditions.situation import Situation
from distserve_operator.observed.answer import CannotServe, GatewayAnswer, NoAnswer, Serves
from distserve_operator.observed.fleet import Fleet
from distserve_operator.observed.gateway import GatewayPod, GatewayState
from distserve_operator.observed.pods import WorkerPod
from distserve_operator.observed.problems import Problem
from distserve_operator.reconciling.role_situations import role_situations
from distserve_proto.contract import Role

C = ConditionType
GATEWAY = GatewayState(replicas=1, ready=1, updated=1, current=True, started=True)


READY_POD = GatewayPod("chat-gateway-1-x", "10.0.0.9")


def situation_of(
    world: World,
    *failures: Failure,
    gateway: GatewayState | None = GATEWAY,
    answer: GatewayAnswer | None = Serves(),  # noqa: B008 - frozen
    **fleet: Any,
) -> Situation:
    seen = {"ready_gateway": READY_POD} | fleet
    observed = Fleet(pods=tuple(world.pods.values()), gateway=gateway, **seen)
    verdict = placement_verdict(world.deployment)
    untouched = None if verdict.holds else NOT_PLACED
    roles = role_situations(world.deployment, world.settings, observed, failures)
    return Situation(world.deployment, verdict, roles, observed, failures, untouched, answer)


def settled(**options: Any) -> World:
    world = World(deployment(**options), SETTINGS)
    settle(world)
    return world


def change(world: World, role: Role, **fields: Any) -> WorkerPod:
    pod = next(pod for pod in world.pods.values() if pod.role == role)
    world.pods[pod.uid] = replace(pod, **fields)
    return pod


def summary(verdicts: Verdicts) -> dict[str, tuple[str, str]]:
    return {str(kind): (str(verdict.state), verdict.reason) for kind, verdict in verdicts.items()}


def test_a_complete_fleet_is_ready() -> None:
    """B17, B30."""
    verdicts = verdicts_of(situation_of(settled(prefill=2, max_devices=3)))
    assert summary(verdicts) == {
        "Ready": ("True", "Serving"),
        "PlacementReady": ("True", "Manual"),
        "PrefillReady": ("True", "AllReady"),
        "DecodeReady": ("True", "AllReady"),
        "GatewayReady": ("True", "AllReady"),
        "Reconciling": ("False", "Settled"),
        "Stalled": ("False", "NoObstacle"),
    }
    assert "2xTP1 -> 1xTP1" in verdicts[C.READY].message
    assert "2 of 2 prefill instances ready" in verdicts[C.PREFILL].message


def test_a_complete_colocated_fleet_is_ready_and_says_nothing_of_other_roles() -> None:
    """B17, B30."""
    verdicts = verdicts_of(situation_of(settled(colocated={"tp": 2, "replicas": 2}, max_devices=4)))
    assert list(verdicts) == [C.READY, C.PLACEMENT, C.COLOCATED, C.GATEWAY, C.RECONCILING, C.STALLED]
    assert all(verdicts[kind].holds for kind in (C.READY, C.PLACEMENT, C.COLOCATED, C.GATEWAY))
    assert "2xTP2 colocated serves smollm2" in verdicts[C.READY].message
    assert "2 of 2 colocated instances ready" in verdicts[C.COLOCATED].message


def test_instances_of_an_earlier_shape_keep_the_deployment_from_being_settled() -> None:
    """B30: they are told until they are gone."""
    world = settled()
    world.deployment = deployment(colocated=1, max_devices=3)
    world.act(world.plan())
    world.tick()
    verdicts = verdicts_of(situation_of(world))
    assert verdicts[C.COLOCATED].holds
    assert (verdicts[C.PREFILL].reason, verdicts[C.DECODE].reason) == ("ScalingDown", "ScalingDown")
    assert "1 prefill instances are left" in verdicts[C.PREFILL].message
    assert not verdicts[C.READY].holds
    settle(world)
    assert C.PREFILL not in verdicts_of(situation_of(world))


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_ready_needs_both_roles(role: Role) -> None:
    """B17: there is no usable pair without either."""
    world = settled()
    change(world, role, ready=False)
    verdicts = verdicts_of(situation_of(world))
    assert not verdicts[C.READY].holds
    assert verdicts[C.RECONCILING].holds
    assert not verdicts[C.STALLED].holds


@pytest.mark.parametrize(
    "gateway",
    [
        None,
        replace(GATEWAY, ready=0),
        replace(GATEWAY, updated=0),
        replace(GATEWAY, current=False),
        replace(GATEWAY, replicas=2),
    ],
)
def test_ready_needs_the_gateway_at_its_current_template(gateway: GatewayState | None) -> None:
    """B30."""
    verdicts = verdicts_of(situation_of(settled(), gateway=gateway))
    assert not verdicts[C.GATEWAY].holds
    assert not verdicts[C.READY].holds


def test_ready_needs_a_gateway_pod_that_can_be_asked() -> None:
    """B17: counts of a Deployment alone are no proof."""
    verdicts = verdicts_of(situation_of(settled(), answer=None, ready_gateway=None))
    assert summary(verdicts)["GatewayReady"] == ("False", "Starting")


def test_ready_needs_a_pair_that_the_gateway_finds_usable() -> None:
    """B17: ready pods that cannot work together are not enough; the gateway's own words tell why."""
    answer = CannotServe("no prefill and decode instance hold the same weights")
    verdicts = verdicts_of(situation_of(settled(), answer=answer))
    assert verdicts[C.GATEWAY].reason == verdicts[C.READY].reason == verdicts[C.RECONCILING].reason == "NoUsablePair"
    assert "hold the same weights" in verdicts[C.READY].message
    assert not verdicts[C.STALLED].holds


def test_a_gateway_that_the_operator_cannot_reach_is_not_taken_for_ready() -> None:
    """B17."""
    answer = NoAnswer("GET http://10.0.0.9:8000/v1/models/smollm2: timed out")
    verdicts = verdicts_of(situation_of(settled(), answer=answer))
    assert verdicts[C.GATEWAY].reason == verdicts[C.READY].reason == "GatewayUnreachable"
    assert "10.0.0.9:8000" in verdicts[C.READY].message
    assert "NetworkPolicies" in verdicts[C.READY].message


def test_the_gateway_is_asked_when_there_ought_to_be_a_pair_and_not_before() -> None:
    world = settled(prefill=2, max_devices=3)
    assert is_in_question(situation_of(world, answer=None))
    assert is_in_question(situation_of(world, answer=CannotServe("why")))
    change(world, Role.PREFILL, ready=False)
    assert is_in_question(situation_of(world)), "one prefill instance is enough for a pair"
    assert not is_in_question(situation_of(world, gateway=replace(GATEWAY, ready=0)))
    change(world, Role.DECODE, ready=False)
    assert not is_in_question(situation_of(world))
    colocated = settled(colocated=1)
    assert is_in_question(situation_of(colocated, answer=None)), "one colocated instance is a pair by itself"


def test_a_pod_of_an_older_template_does_not_count() -> None:
    """B30."""
    world = settled()
    world.deployment = deployment(uri="pvc://models/other.gguf")
    verdict = verdicts_of(situation_of(world))[C.PREFILL]
    assert (verdict.state, verdict.reason) == (State.FALSE, "Rolling")
    assert "0 of 1 prefill instance ready" in verdict.message
    assert "1 of the previous template" in verdict.message


def test_a_surplus_pod_keeps_its_role_from_being_ready() -> None:
    world = settled(prefill=2, max_devices=3)
    world.deployment = deployment(prefill=1, max_devices=3)
    assert verdicts_of(situation_of(world))[C.PREFILL].reason == "ScalingDown"


def test_a_workers_own_reason_is_shown_with_its_text_and_stalls() -> None:
    world = settled()
    pod = change(world, Role.PREFILL, ready=False, problem=Problem("ModelNotFound", "/models/x: no such file", True))
    verdicts = verdicts_of(situation_of(world))
    assert verdicts[C.PREFILL].reason == verdicts[C.READY].reason == verdicts[C.STALLED].reason == "ModelNotFound"
    assert "/models/x: no such file" in verdicts[C.READY].message
    assert pod.name in verdicts[C.READY].message
    assert verdicts[C.STALLED].holds
    assert not verdicts[C.RECONCILING].holds


@pytest.mark.parametrize(
    "reason", ["ImagePullFailed", "Unschedulable", "VolumeClaimNotFound", "Crashed", "OutOfMemory"]
)
def test_what_may_pass_is_shown_and_does_not_stall(reason: str) -> None:
    world = settled()
    change(world, Role.DECODE, ready=False, problem=Problem(reason, "why"))
    verdicts = verdicts_of(situation_of(world))
    assert verdicts[C.DECODE].reason == verdicts[C.READY].reason == reason
    assert not verdicts[C.STALLED].holds


def test_a_permanent_problem_is_shown_before_a_passing_one() -> None:
    world = settled(prefill=2, max_devices=3)
    pods = [pod for pod in world.pods.values() if pod.role == Role.PREFILL]
    problems = [Problem("Unschedulable", "no room"), Problem("ModelInvalid", "no tensor", permanent=True)]
    for pod, problem in zip(pods, problems, strict=True):
        world.pods[pod.uid] = replace(pod, ready=False, problem=problem)
    assert verdicts_of(situation_of(world))[C.PREFILL].reason == "ModelInvalid"


def test_a_pod_that_became_ready_has_no_problem_any_more() -> None:
    world = settled()
    change(world, Role.PREFILL, problem=Problem("Crashed", "once"))
    assert verdicts_of(situation_of(world))[C.PREFILL].holds


def test_a_problem_of_the_gateway_is_shown() -> None:
    gateway = replace(GATEWAY, ready=0)
    problem = Problem("ModelNotFound", "chat-gateway-1: /models/x", permanent=True)
    verdicts = verdicts_of(situation_of(settled(), gateway=gateway, gateway_problem=problem))
    assert verdicts[C.GATEWAY].reason == "ModelNotFound"
    assert verdicts[C.STALLED].holds


def test_a_refused_pod_shows_what_the_api_server_said() -> None:
    refusal = Failure(Role.PREFILL, "PodRefused", "exceeded quota: devices")
    world = World(deployment(), SETTINGS)
    verdicts = verdicts_of(situation_of(world, refusal))
    assert verdicts[C.PREFILL].reason == "PodRefused"
    assert "exceeded quota: devices" in verdicts[C.PREFILL].message
    assert verdicts[C.DECODE].reason == "Starting"


def test_a_name_that_is_taken_stalls_and_is_named() -> None:
    """B31."""
    taken = Failure(Role.GATEWAY, "NameConflict", "Service chat-gateway exists", permanent=True)
    verdicts = verdicts_of(situation_of(settled(), taken))
    assert verdicts[C.GATEWAY].reason == verdicts[C.STALLED].reason == "NameConflict"
    assert "Service chat-gateway" in verdicts[C.STALLED].message


def test_a_shape_that_the_engine_cannot_run_is_refused_with_its_numbers() -> None:
    fleet = deployment(uri="hf://HuggingFaceTB/SmolLM2-135M", prefill={"pp": 31}, decode={"tp": 4}, max_devices=64)
    verdicts = verdicts_of(situation_of(World(fleet, SETTINGS)))
    assert summary(verdicts) == {
        "Ready": ("False", "UnsupportedShape"),
        "PlacementReady": ("False", "UnsupportedShape"),
        "PrefillReady": ("Unknown", "NotPlaced"),
        "DecodeReady": ("Unknown", "NotPlaced"),
        "GatewayReady": ("Unknown", "NotPlaced"),
        "Reconciling": ("False", "Stalled"),
        "Stalled": ("True", "UnsupportedShape"),
    }
    assert verdicts[C.PLACEMENT].message == (
        "placement.prefill: pp is 31, but SmolLM2-135M has 30 layers; lower it; "
        "placement.decode: tp is 4, but the 9 heads of SmolLM2-135M cannot be shared out to 4 devices; tp can be 1, 3"
    )


def test_a_model_whose_numbers_are_not_known_may_be_cut_in_any_way() -> None:
    """The workers find out, and their reason is shown."""
    fleet = deployment(uri="pvc://models/own", prefill={"tp": 7}, max_devices=8)
    assert placement_verdict(fleet).holds


def test_too_many_devices_are_refused_with_both_numbers() -> None:
    """B35."""
    verdicts = verdicts_of(situation_of(World(deployment(prefill=5, max_devices=3), SETTINGS)))
    assert verdicts[C.PLACEMENT].reason == "TooManyDevices"
    assert "6 devices" in verdicts[C.PLACEMENT].message
    assert "maxDevices is 3" in verdicts[C.PLACEMENT].message


def test_waiting_for_devices_says_how_many_are_missing() -> None:
    world = settled()
    pod = next(pod for pod in world.pods.values() if pod.role == Role.PREFILL)
    world.pods[pod.uid] = replace(pod, ready=False, deadline=world.now + timedelta(seconds=60))
    verdict = verdicts_of(situation_of(world))[C.PREFILL]
    assert verdict.reason == "WaitingForDevices"
    assert "1 still leaving" in verdict.message


def test_a_transition_time_moves_only_when_the_status_flips() -> None:
    first = render({C.READY: Verdict(State.FALSE, "Starting", "a")}, 1, [], START)
    later = START + timedelta(minutes=1)
    same = render({C.READY: Verdict(State.FALSE, "Crashed", "b")}, 2, first, later)
    assert same[0]["lastTransitionTime"] == first[0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert (same[0]["reason"], same[0]["observedGeneration"]) == ("Crashed", 2)
    flipped = render({C.READY: Verdict(State.TRUE, "Serving", "")}, 2, same, later)
    assert flipped[0]["lastTransitionTime"] == "2026-01-01T00:01:00Z"


def test_an_endless_message_is_cut() -> None:
    (condition,) = render({C.READY: Verdict(State.FALSE, "Crashed", "x" * 10_000)}, 1, [], START)
    assert len(condition["message"]) == 2048
