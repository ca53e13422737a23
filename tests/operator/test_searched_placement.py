"""The operator as a process against a real API server, with shapes that it has to search."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from distserve_testing.clusters import Namespace, survivors, until
from distserve_testing.deployments import auto_resource, gpu_resource
from distserve_testing.operator_process import Fleet, OperatorProcess
from distserve_testing.played_gateway import PlayedGateway
from distserve_testing.rest import Rest

from distserve_devcluster.cluster import Cluster
from distserve_proto.contract import WORKER_ROLES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SEARCH_SECONDS = 120  # only bounds a failing test: the machine may be busy
LOADS: dict[str, dict[str, Any]] = {
    "light": auto_resource(rate="0.2")["spec"]["workload"],
    "heavy": auto_resource(rate="6")["spec"]["workload"],
    "hopeless": auto_resource(rate="500")["spec"]["workload"],
}
IMPOSSIBLE = {"ttftMilliseconds": 1, "tpotMilliseconds": 1, "attainmentPercent": 90}


@pytest.fixture(scope="module", autouse=True)
def simulator() -> None:
    """Compiled, so that the operators of this module need not do it."""
    subprocess.run([sys.executable, "-m", "distserve_operator.reconciling.warming"], check=True, timeout=280)


@pytest.fixture(scope="module", autouse=True)
def nodes(cluster: Cluster) -> Iterator[None]:
    """The node takes pods, so that its devices count; the workers' claim does not exist, so that none starts."""
    admin = Namespace(cluster, "default")
    admin.kubectl("uncordon", "distserve-node-0")
    yield
    admin.kubectl("cordon", "distserve-node-0")


class Searched(Fleet):
    """A deployment of type Auto."""

    def wait(self, kind: str, status: str, reason: str) -> dict[str, Any]:
        """The condition once it is so, however long a search takes here."""

        def reached() -> dict[str, Any] | None:
            found = self.condition(kind)
            return found if (found.get("status"), found.get("reason")) == (status, reason) else None

        try:
            return until(reached, f"{kind} is {status} {reason}", SEARCH_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.resource().get('status'), indent=1)}") from error

    def plan(self) -> dict[str, Any]:
        """`status.plan`."""
        found: dict[str, Any] = self.resource()["status"]["plan"]
        return found

    def events(self) -> list[str]:
        """Reasons of the events about it."""
        return [event["reason"] for event in self.rest.list("events", self.namespace.name)]


Deploy = Callable[..., Searched]


@pytest.fixture
def search(namespace: Namespace, rest: Rest, gateway: PlayedGateway) -> Deploy:
    """Create or change a deployment of type Auto."""

    def apply(name: str = "chat", **options: Any) -> Searched:
        body = auto_resource(name, **options)
        body["metadata"] = {"name": name, "namespace": namespace.name}
        rest.apply("distservedeployments", namespace.name, body)
        return Searched(rest, namespace, name, gateway)

    return apply


def made_of(plan: dict[str, Any]) -> list[str]:
    """Beginnings of the names of its worker pods."""
    return [f"chat-{role}-{i}-" for role in WORKER_ROLES if role in plan for i in range(plan[role]["replicas"])]


def arguments_of(pod: dict[str, Any]) -> list[str]:
    """What its worker is told."""
    return list(pod["spec"]["containers"][0]["args"])


def step_arguments(plan: dict[str, Any]) -> set[str]:
    """How a worker is told of the size of its steps."""
    flags = {"maxBatchTokens": "--max-batch-tokens", "chunkTokens": "--chunk-tokens"}
    pools = [plan[role] for role in WORKER_ROLES if role in plan]
    found = {f"{flag}={pool[name]}" for pool in pools for name, flag in flags.items() if name in pool}
    assert found
    return found


def searches(operator: OperatorProcess) -> int:
    """How many were begun."""
    return operator.log.read_text().count("searches a shape")


def held_search(operator: OperatorProcess) -> list[psutil.Process]:
    """The processes of the operator once it searches; they stand still, so the search does not end by itself."""

    def found() -> list[psutil.Process] | None:
        children = psutil.Process(operator.running.pid).children(recursive=True)
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())] or None

    processes = until(found, "a search runs")
    for process in processes:
        process.suspend()
    return processes


def test_a_shape_is_found_and_made_and_not_searched_again(operator: OperatorProcess, search: Deploy) -> None:
    """B24, B26, B35: not even by the next operator."""
    operator.start()
    chat = search()
    planned = chat.wait("PlacementReady", "True", "Planned")
    plan = chat.plan()
    assert plan["outcome"] == "Feasible"
    assert f"{plan['shape']} takes {plan['devices']} of at most 4 CPU devices" in planned["message"]
    assert "this version runs an instance in one pod" in planned["message"]
    names = chat.wait_names(*made_of(plan))
    assert step_arguments(plan) <= {argument for pod in chat.workers() for argument in arguments_of(pod)}
    chat.become_ready()
    shown = chat.namespace.kubectl("get", "dsd", "chat").splitlines()
    assert shown[0].split() == ["NAME", "MODEL", "SHAPE", "DEVICES", "GOODPUT/DEVICE", "ATTAINMENT", "READY", "AGE"]
    assert plan["shape"] in shown[1]
    assert plan["goodputPerDevice"] in shown[1]
    chat.wait_told("PlacementFound")
    before = chat.versions()
    operator.kill()
    operator.start()
    operator.wait_ready()
    search(gateway={"replicas": 1, "port": 9999})
    until(lambda: chat.plan()["observedGeneration"] == 2, "the next operator has looked at it")
    after = chat.versions()
    assert {name for name in before if before[name] != after[name]} <= {"distservedeployments/chat", "services/chat"}
    assert chat.names() == names
    assert searches(operator) == 1


def test_mode_plan_shows_the_answer_and_touches_no_child(operator: OperatorProcess, search: Deploy) -> None:
    operator.start()
    chat = search(mode="Plan")
    chat.wait("PlacementReady", "True", "Planned")
    plan = chat.plan()
    assert plan["outcome"] == "Feasible"
    assert plan["shape"]
    assert "serving" not in chat.resource()["status"]
    assert chat.condition("Ready")["reason"] == chat.condition("PrefillReady")["reason"] == "PlanOnly"
    assert chat.condition("Reconciling")["status"] == chat.condition("Stalled")["status"] == "False"
    assert plan["shape"] in chat.namespace.kubectl("get", "dsd", "chat")
    assert chat.children() == []
    search()
    chat.wait("PlacementReady", "True", "Planned")
    until(lambda: len(chat.workers()) == chat.plan()["devices"], "it is made in mode Apply", 30)
    chat.become_ready()
    before = chat.versions()
    search(mode="Plan", workload=LOADS["heavy"], max_devices=8)
    chat.wait("PlacementReady", "True", "Planned")
    after = chat.versions()
    assert {name for name in before if before[name] != after[name]} == {"distservedeployments/chat"}
    assert before.keys() == after.keys()


def test_an_operator_killed_while_it_searches_leaves_nothing_and_the_next_one_ends_alike(
    operator: OperatorProcess, search: Deploy
) -> None:
    """B24."""
    operator.start()
    chat = search()
    processes = held_search(operator)
    operator.kill()
    assert chat.children() == []
    for process in processes:
        process.resume()
    until(lambda: not survivors(processes), "the search has ended with the operator", SEARCH_SECONDS)
    operator.start()
    chat.wait("PlacementReady", "True", "Planned")
    until(lambda: len(chat.workers()) == chat.plan()["devices"], "all workers are made", 30)
    chat.become_ready()
    assert searches(operator) == 2


def test_an_edit_while_it_searches_is_what_is_answered(operator: OperatorProcess, search: Deploy) -> None:
    operator.start()
    chat = search(workload=LOADS["light"], max_devices=8)
    processes = held_search(operator)
    search(workload=LOADS["heavy"], max_devices=8)
    chat.wait("PlacementReady", "True", "Planned")
    assert chat.plan()["observedGeneration"] == 2
    assert chat.plan()["devices"] > 2
    until(lambda: len(chat.workers()) == chat.plan()["devices"], "all workers are made", 30)
    assert not survivors(processes)
    chat.wait_told("PlacementFound")
    assert chat.events().count("PlacementFound") == 1


def test_the_old_shape_serves_until_there_is_a_new_one(operator: OperatorProcess, search: Deploy) -> None:
    operator.start()
    chat = search(workload=LOADS["light"], max_devices=8)
    chat.wait("PlacementReady", "True", "Planned")
    before = chat.plan()
    names = chat.wait_names(*made_of(before))
    chat.become_ready()
    search(workload=LOADS["heavy"], max_devices=8)
    waiting = until(lambda: chat.condition("PlacementReady") or None, "the new spec is looked at")
    assert waiting["reason"] == "Planned" or f"{before['shape']} keeps serving" in waiting["message"]
    chat.wait("PlacementReady", "True", "Planned")
    until(lambda: len(chat.workers()) == chat.plan()["devices"], "the new instances are made", 30)
    assert set(names) < set(chat.names())
    chat.become_ready()
    until(lambda: "PlacementChanged" in chat.events(), "it is told", 30)


def test_targets_that_nothing_holds_are_answered_with_figures_and_make_no_pod(
    operator: OperatorProcess, search: Deploy
) -> None:
    """B40."""
    operator.start()
    chat = search(slo=IMPOSSIBLE)
    refused = chat.wait("PlacementReady", "False", "SLOUnreachable")
    plan = chat.plan()
    assert plan["binding"] in refused["message"]
    assert "not 1 ms" in plan["binding"]
    assert float(plan["p90"]["ttftMilliseconds"]) > 1
    chat.wait("Stalled", "True", "SLOUnreachable")
    chat.wait_told("PlacementInfeasible")
    assert chat.children() == []
    search()
    chat.wait("PlacementReady", "True", "Planned")
    chat.wait_names(*made_of(chat.plan()))


def test_a_fleet_is_kept_up_while_the_new_spec_has_no_answer(operator: OperatorProcess, search: Deploy) -> None:
    """B29, B40."""
    operator.start()
    chat = search()
    chat.wait("PlacementReady", "True", "Planned")
    before = chat.plan()
    names = chat.wait_names(*made_of(before))
    chat.become_ready()
    search(workload=LOADS["hopeless"])
    refused = chat.wait("PlacementReady", "False", "RateUnreachable")
    assert "500 req/s were asked for" in refused["message"]
    assert f"{before['shape']} keeps serving" in refused["message"]
    operator.kill()
    chat.delete("pods", names[0])
    until(lambda: names[0] not in chat.names(), "the pod is gone", 60)
    operator.start()
    assert chat.wait_names(*made_of(before)) == names
    chat.make_ready()
    until(lambda: chat.condition("ColocatedReady").get("status") == "True", "it is whole again", 30)
    assert chat.condition("Ready")["reason"] == "RateUnreachable"
    assert searches(operator) == 2


def test_an_unknown_model_is_named_with_the_nearest_ones(operator: OperatorProcess, search: Deploy) -> None:
    operator.start()
    chat = search(uri="hf://HuggingFaceTB/SmolLM2-135B")
    refused = chat.wait("PlacementReady", "False", "UnknownModel")
    assert "'HuggingFaceTB/SmolLM2-135B' is not known: did you mean SmolLM2-135M" in refused["message"]
    assert "placement.type Manual" in refused["message"]
    chat.wait("Stalled", "True", "UnknownModel")
    assert chat.children() == []
    assert searches(operator) == 0


def test_devices_that_do_not_exist_are_counted_before_any_pod_is_made(
    operator: OperatorProcess, rest: Rest, gateway: PlayedGateway, namespace: Namespace
) -> None:
    """B35."""
    operator.start()
    body = gpu_resource("chat", "H200", uri="hf://org/opt-13b", max_devices=4)
    body["spec"] |= {key: auto_resource()["spec"][key] for key in ("slo", "workload", "placement")}
    body["metadata"] = {"name": "chat", "namespace": namespace.name}
    rest.apply("distservedeployments", namespace.name, body)
    chat = Searched(rest, namespace, "chat", gateway)
    refused = chat.wait("PlacementReady", "False", "NotEnoughDevices")
    assert "a fleet takes at least 1 H200 device, 0 are free on the nodes" in refused["message"]
    chat.wait("Reconciling", "True", "NotEnoughDevices")
    assert chat.children() == []


def test_a_search_that_dies_is_told_and_tried_again(operator: OperatorProcess, search: Deploy) -> None:
    operator.start()
    chat = search()
    for process in held_search(operator):
        process.kill()
    until(lambda: "SearchFailed" in chat.events(), "it is told", 60)
    chat.wait("PlacementReady", "True", "Planned")
    chat.wait_names(*made_of(chat.plan()))
    assert "ended by SIGKILL" in operator.log.read_text()
