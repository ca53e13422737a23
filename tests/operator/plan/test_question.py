"""From a spec to the question of the search."""

from typing import Any

import pytest
from distserve_testing.deployments import auto_resource, gpu_resource

from distserve_operator.api.parsing import parse
from distserve_operator.api.targets import Targets
from distserve_operator.observed.nodes import Survey
from distserve_operator.placement.memory import capacity_blocks
from distserve_operator.placement.question import Affinity, Question
from distserve_operator.placement.search.spaces import shapes
from distserve_operator.placement.shape import Shape
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.lengths import LogNormal
from distserve_operator.plan.question import question_of
from distserve_proto.contract import PROCESS_BYTES

GIB = 1024**3


def question(body: dict[str, Any]) -> Question:
    wanted = parse(body)
    assert isinstance(wanted.placement, Targets)
    return question_of(wanted, wanted.placement, Survey((8, 4)))


def on_gpus(uri: str, **options: Any) -> dict[str, Any]:
    auto = auto_resource()["spec"]
    sections = {name: auto[name] for name in ("slo", "workload", "placement")}
    return gpu_resource(uri=uri, **{"model": {"uri": uri, "dtype": "BF16"}, **sections, **options})


def test_every_field_of_the_spec_arrives() -> None:
    slo = {"ttftMilliseconds": 300, "tpotMilliseconds": 50, "maxGapMilliseconds": 400, "attainmentPercent": 95}
    workload = {
        "requestsPerSecond": "2.5",
        "inputTokens": {"distribution": "LogNormal", "mean": 760, "variationPercent": 70},
        "outputTokens": {"distribution": "Fixed", "mean": 190},
    }
    found = question(auto_resource(slo=slo, workload=workload, max_devices=6, mode="Plan"))
    assert found.model.name == "SmolLM2-135M"
    assert found.model.weight_type == "FP32"
    assert found.slo == Slo(0.3, 0.05, 0.95, 0.4)
    assert found.rate == 2.5
    assert found.workload.lengths == LogNormal(760, 0.7, 190, 0)
    assert found.workload.longest == 2048
    assert (found.inventory.free, found.inventory.most) == ((8, 4), 6)
    assert found.affinity is Affinity.AUTO
    assert "roofline" in found.latency.source


def test_a_cpu_device_has_the_cores_of_its_pod_and_the_memory_that_its_process_leaves() -> None:
    """The process with its libraries, and the scores of SmolLM2's vocabulary for all requests of a step."""
    one, two = (question(auto_resource(mode="Plan", cluster={"coresPerDevice": n})).device for n in (1, 2))
    assert two.flops["FP32"] == 2 * one.flops["FP32"]
    assert two.bandwidth == 2 * one.bandwidth
    assert one.memory == 3 * GIB - PROCESS_BYTES - 64 * 49152 * 16


def test_mode_plan_asks_about_every_fleet() -> None:
    found = question(on_gpus("hf://org/Llama-3.1-70B", mode="Plan", cluster={"affinity": "Low"}))
    assert found.only is None
    assert found.affinity is Affinity.LOW
    assert {1, 2, 4, 8} <= set(found.latency.laws)


def test_mode_apply_asks_about_what_the_workers_run() -> None:
    """To be widened together with `api.capability.WORKERS`."""
    found = question(on_gpus("hf://org/Llama-3.1-8B"))
    assert found.only is None
    assert found.affinity is Affinity.HIGH
    assert found.inventory.whole
    assert {1, 2, 4, 8} <= set(found.latency.laws)


def test_an_instance_stays_on_one_node() -> None:
    found = question(on_gpus("hf://org/Llama-3.1-8B", cluster={"maxDevices": 12}))
    widest = max(shape.devices for shape in shapes(found))
    assert widest == 8, "the survey has a node of 8 and one of 4"
    plan = question(on_gpus("hf://org/Llama-3.1-8B", mode="Plan", cluster={"maxDevices": 12}))
    assert max(shape.devices for shape in shapes(plan)) == 12


def test_every_degree_that_is_asked_about_is_one_that_workers_can_cut() -> None:
    """They need the FFN columns to divide as well: 9 divides the heads of SmolLM2-135M, but not its 1536 columns."""
    assert set(question(auto_resource()).latency.laws) == {1, 3}


@pytest.mark.parametrize("tp", [1, 3])
def test_mode_apply_counts_with_the_cache_that_each_cpu_pod_sets_aside(tp: int) -> None:
    found = question(auto_resource())
    tokens = 16 * capacity_blocks(found.model, found.device, Shape(tp, 1))
    assert tokens * found.model.kv_bytes_per_token == pytest.approx(tp * GIB, rel=0.001)


def test_a_gpu_holds_what_its_weights_leave() -> None:
    """70 billion parameters in BF16 need the memory of two GPUs, in both modes."""
    for mode in ("Apply", "Plan"):
        found = question(on_gpus("hf://org/Llama-3.1-70B", mode=mode, cluster={"maxDevices": 8}))
        assert {shape.devices for shape in shapes(found)} == {2, 3, 4, 5, 6, 7, 8}
        assert found.device.cache is None


def test_mode_apply_counts_with_the_seats_of_each_pod() -> None:
    for body, seats in ((auto_resource(), 64), (on_gpus("hf://org/Llama-3.1-8B"), 256)):
        assert question(body).latency.rules.decode_requests == seats


@pytest.mark.parametrize(("limit", "longest"), [(None, 2048), (500, 500)])
def test_no_request_is_longer_than_the_spec_says_or_the_model_can(limit: int | None, longest: int) -> None:
    model = {"uri": "hf://org/OPT-125M"} | ({} if limit is None else {"maxModelLength": limit})
    assert question(on_gpus("hf://org/OPT-125M", model=model)).workload.longest == longest


def test_a_limit_above_what_the_model_was_trained_for_is_refused() -> None:
    """As the workers would."""
    model = {"uri": "hf://org/OPT-125M", "maxModelLength": 2049}
    with pytest.raises(WorkloadError, match=r"spec.model.maxModelLength 2049: the context of OPT-125M has 2048 tokens"):
        question(on_gpus("hf://org/OPT-125M", model=model))


def test_a_limit_that_the_usual_request_exceeds_is_named() -> None:
    model = {"uri": "hf://org/OPT-125M", "maxModelLength": 50}
    with pytest.raises(WorkloadError, match=r"more than spec.model.maxModelLength: make it shorter or raise that"):
        question(on_gpus("hf://org/OPT-125M", model=model))


def test_a_request_that_the_model_cannot_take_is_refused() -> None:
    workload = auto_resource()["spec"]["workload"] | {"inputTokens": {"distribution": "Fixed", "mean": 9000}}
    with pytest.raises(WorkloadError, match="9000 \\+ 60 tokens"):
        question(auto_resource(workload=workload, model={"uri": "hf://org/SmolLM2-135M", "dtype": "FP32"}))
