"""How many devices nodes have free."""

from decimal import Decimal
from typing import Any

import pytest

from distserve_operator.observed.nodes import Survey, devices_of, requests_of, survey_of

GPU = "nvidia.com/gpu"
ASKED = {"cpu": Decimal(1), "memory": Decimal(32 * 1024**3), GPU: Decimal(1), "pods": Decimal(1)}


def node(name: str = "a", gpus: int = 8, cpu: str = "96", **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": "1Ti", GPU: str(gpus), "pods": "110"}
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable}}


def taint(key: str, effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "effect": effect}


def container(**requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests}}


def free(*nodes: dict[str, Any], most: int = 100, **taken: dict[str, Decimal]) -> Survey:
    return survey_of(nodes, taken, ASKED, GPU, most)


def test_what_is_scarcest_on_a_node_counts() -> None:
    assert devices_of(node(), {}, ASKED) == 8
    assert devices_of(node(), {GPU: Decimal(3)}, ASKED) == 5
    assert devices_of(node(cpu="3500m"), {}, ASKED) == 3
    assert devices_of(node(), {"memory": Decimal(1024**4 - 70 * 1024**3)}, ASKED) == 2
    assert devices_of(node(), {"pods": Decimal(109)}, ASKED) == 1
    assert devices_of({"metadata": {"name": "new"}}, {}, ASKED) == 0


def test_nodes_are_listed_by_what_they_have_free_up_to_what_may_be_used() -> None:
    found = free(node("a", 2), node("b"), node("c"), node("d", 0), b={GPU: Decimal(1)}, c={GPU: Decimal(9)})
    assert found == Survey((7, 2))
    assert free(node("a", 2), node("b"), most=4).free == (4, 2)


@pytest.mark.parametrize(
    "spec",
    [
        {"unschedulable": True},
        {"taints": [taint("node.kubernetes.io/not-ready")]},
        {"taints": [taint(GPU), taint("theirs")]},
        {"taints": [taint(GPU, "NoExecute")]},
    ],
)
def test_nodes_that_would_not_take_our_pods_do_not_count(spec: dict[str, Any]) -> None:
    """B35."""
    assert free(node(**spec)).free == ()


def test_the_usual_taint_of_gpu_nodes_and_mere_preferences_do_not_matter() -> None:
    assert free(node(taints=[taint(GPU), taint("theirs", "PreferNoSchedule")])).free == (8,)


@pytest.mark.parametrize(
    ("spec", "cores"),
    [
        ({"containers": [container(cpu="500m"), container(cpu="1"), {}]}, "1.5"),
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, "3"),
        (
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="2") | {"restartPolicy": "Always"}]},
            "3",
        ),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, "1.25"),
        ({"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "4"}}}, "4"),
        ({"containers": [container()]}, "0"),
    ],
)
def test_a_pod_takes_what_the_scheduler_counts_for_it(spec: dict[str, Any], cores: str) -> None:
    assert requests_of({"spec": spec}, ["cpu", "pods"]) == {"cpu": Decimal(cores), "pods": 1}


@pytest.mark.parametrize(
    ("survey", "text", "devices"),
    [
        (Survey((8, 8, 4)), "2x8 + 1x4", 20),
        (Survey(()), "none", 0),
        (Survey((8, 2), assumed=True), "1x8 + 1x2 (assumed)", 10),
    ],
)
def test_a_survey_is_told_as_nodes_and_devices(survey: Survey, text: str, devices: int) -> None:
    assert (str(survey), survey.devices) == (text, devices)
