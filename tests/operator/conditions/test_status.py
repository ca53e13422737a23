"""Every status that can be produced fits the schema of the custom resource."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import yaml
from distserve_testing.deployments import SAMPLES, SETTINGS, deployment, resource
from distserve_testing.kubernetes_world import START, World
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.conditions.decision import NOT_PLACED
from distserve_operator.conditions.failure import Failure
from distserve_operator.conditions.placement import placement_verdict
from distserve_operator.conditions.situation import Situation
from distserve_operator.conditions.status import status_of, status_of_invalid_spec
from distserve_operator.observed.answer import CannotServe, GatewayAnswer, NoAnswer, Serves
from distserve_operator.observed.fleet import Fleet
from distserve_operator.observed.gateway import GatewayPod, GatewayState
from distserve_operator.observed.problems import Problem
from distserve_operator.reconciling.role_situations import role_situations
from distserve_proto.contract import Role

Check = Callable[[dict[str, Any]], None]
SMALL = st.integers(0, 3)
REASONS = st.sampled_from(["ModelNotFound", "Unschedulable", "PodRefused", "NameConflict", "Evicted"])

answers = st.sampled_from([None, Serves(), CannotServe("no pair"), NoAnswer("timed out")])
gateways = st.none() | st.builds(GatewayState, SMALL, SMALL, SMALL, st.booleans(), st.booleans())
problems = st.none() | st.builds(Problem, reason=REASONS, message=st.text(max_size=3000), permanent=st.booleans())
failures = st.lists(
    st.builds(
        Failure,
        role=st.sampled_from([None, *Role]),
        reason=REASONS,
        message=st.text(max_size=20),
        permanent=st.booleans(),
    ),
    max_size=2,
)
sizes = st.fixed_dictionaries({"tp": st.integers(1, 3), "pp": st.integers(1, 2), "replicas": st.integers(1, 3)})
shapes = st.one_of(
    st.fixed_dictionaries({"prefill": sizes, "decode": sizes}), st.fixed_dictionaries({"colocated": sizes})
)
fleets = st.builds(
    lambda roles, most, generation: deployment(max_devices=most, generation=generation, **roles),
    shapes,
    st.integers(1, 30),
    st.integers(1, 2),
)


def situation_of(world: World, fleet: Fleet, failed: list[Failure], answer: GatewayAnswer | None) -> Situation:
    verdict = placement_verdict(world.deployment)
    untouched = None if verdict.holds else NOT_PLACED
    roles = role_situations(world.deployment, world.settings, fleet, failed)
    return Situation(world.deployment, verdict, roles, fleet, tuple(failed), untouched, answer)


@given(fleets, fleets, gateways, problems, problems, failures, answers, st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_every_status_fits_the_schema(
    check_schema: Check,
    earlier: DistServeDeployment,
    wanted: DistServeDeployment,
    gateway: GatewayState | None,
    pod_problem: Problem | None,
    gateway_problem: Problem | None,
    failed: list[Failure],
    answer: GatewayAnswer | None,
    choose: random.Random,
) -> None:
    world = World(earlier, SETTINGS)
    for step in range(choose.randint(0, 6)):
        world.deployment = wanted if step > 2 else earlier
        world.act(world.plan())
        choose.choice([world.tick, world.tick])()
        world.disturb(choose)
    world.deployment = wanted
    pods = tuple(replace(pod, problem=pod_problem) if not pod.ready else pod for pod in world.pods.values())
    fleet = Fleet(pods, (), gateway, gateway_problem, GatewayPod("gateway", "10.0.0.9"))
    status = status_of(situation_of(world, fleet, failed, answer), {}, {}, START)
    check_schema(resource() | {"status": status})
    again = status_of(situation_of(world, fleet, failed, answer), {}, status, START.replace(year=2027))
    assert again == status, "the same situation gives the same status, so that nothing is written"
    types = [condition["type"] for condition in status["conditions"]]
    assert len(types) == len(set(types))
    assert {"Ready", "PlacementReady", "GatewayReady", "Reconciling", "Stalled"} < set(types)
    assert all(condition["observedGeneration"] == wanted.generation for condition in status["conditions"])


def test_an_invalid_spec_gets_a_status_too(check_schema: Check) -> None:
    status = status_of_invalid_spec("spec has no field 'model'", 4, {}, START)
    check_schema(resource() | {"status": status})
    ready = next(condition for condition in status["conditions"] if condition["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "SpecInvalid")
    assert status["observedGeneration"] == 4


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_fits_the_schema(check_schema: Check, path: Any) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        check_schema(document)


@pytest.mark.parametrize(
    ("section", "value", "field"),
    [
        ("model", {}, "uri"),
        ("model", {"uri": "hf://a/b", "dtype": "INT4"}, "INT4"),
        ("model", {"uri": "hf://a/b", "maxModelLength": 1.5}, "1.5"),
        ("cluster", {"deviceType": "TPU", "maxDevices": 1}, "TPU"),
        ("cluster", {"deviceType": "CPU", "maxDevices": "3"}, "3"),
        ("cluster", {"deviceType": "CPU", "maxDevices": 1, "gpus": 3}, "gpus"),
        ("placement", {"prefill": {"replicas": 0}}, "0"),
        ("gateway", {"port": 70000}, "70000"),
    ],
)
def test_what_does_not_fit_is_named(check_schema: Check, section: str, value: Any, field: str) -> None:
    body = resource()
    body["spec"][section] = value
    with pytest.raises(jsonschema.ValidationError, match=field):
        check_schema(body)
