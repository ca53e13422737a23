"""A resource on the command line asks just what its operator asks, and options are looked up."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from distserve_testing.deployments import auto_resource

from distserve_cli.planning.asking import question_of
from distserve_cli.planning.errors import BadInput
from distserve_cli.planning.resource import parse_resource
from distserve_cli.planning.wishes import gather
from distserve_operator.api.parsing import parse
from distserve_operator.api.targets import Targets
from distserve_operator.observed.nodes import Survey
from distserve_operator.placement.memory import capacity_blocks
from distserve_operator.placement.question import Affinity, Question
from distserve_operator.placement.shape import Shape
from distserve_operator.plan import question as operator

SAMPLES = sorted((Path(__file__).parents[3] / "docs/samples").glob("*-auto.yaml"))


def asked(body: dict[str, Any], **options: object) -> Question:
    return question_of(gather(options, *parse_resource(yaml.safe_dump(body), "cr.yaml")))


def asked_by_the_operator(body: dict[str, Any]) -> Question:
    wanted = parse(body | {"metadata": {"namespace": "default", "name": "chat", "uid": "1"}})
    assert isinstance(wanted.placement, Targets)
    nodes = -(-wanted.cluster.max_devices // 8)
    return operator.question_of(wanted, wanted.placement, Survey((8,) * nodes))


@pytest.mark.parametrize("mode", ["Apply", "Plan"])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_asks_what_its_operator_asks(sample: Path, mode: str) -> None:
    body = yaml.safe_load(sample.read_text())
    body["spec"]["mode"] = mode
    assert asked(body) == asked_by_the_operator(body)


@pytest.mark.parametrize("cluster", [{"coresPerDevice": 3}, {"memoryPerDevice": "2Gi"}, {"memoryPerDevice": "1500M"}])
def test_cores_and_memory_of_a_slot_count(cluster: dict[str, object]) -> None:
    body = auto_resource(cluster=cluster)
    assert asked(body) == asked_by_the_operator(body)
    blocks = [capacity_blocks(one.model, one.device, Shape(1, 1)) for one in (asked(auto_resource()), asked(body))]
    assert asked(body).device != asked(auto_resource()).device
    assert (blocks[0] == blocks[1]) is ("coresPerDevice" in cluster)


def test_a_model_without_dtype_is_bf16() -> None:
    body = auto_resource()
    del body["spec"]["model"]["dtype"]
    assert asked(body).model.weight_type == "BF16"
    assert asked(body) == asked_by_the_operator(body)


def test_what_workers_cannot_run_is_asked_in_mode_plan_alone() -> None:
    body = auto_resource(cluster={"affinity": "Low"})
    with pytest.raises(BadInput, match=r"cr.yaml: spec.cluster.affinity Low: .*: choose Auto or High, or mode Plan"):
        asked(body)
    assert asked(body, affinity="High").affinity is Affinity.HIGH
    body["spec"]["mode"] = "Plan"
    assert asked(body).affinity is Affinity.LOW


def test_an_option_for_the_device_goes_before_the_cores() -> None:
    question = asked(auto_resource(cluster={"coresPerDevice": 3}), gpu="A100-80GB")
    assert question.device.name == "A100-80GB"
    assert question.device.cache is None
