"""`distserve plan` from the command line: answers for scripts and people, and one line for what is wrong (B35, B40)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from distserve_cli.__main__ import main

TARGETS = ["--ttft-ms", "250", "--tpot-ms", "100"]
QUESTION = ["--model", "opt-13b", "--gpu", "A100-80GB", *TARGETS, "--lengths", "fixed:512,64", "--requests", "400"]
SMALL = [*QUESTION, "--gpus-per-node", "2"]
CLOCK = {"searchMilliseconds", "searchCpuMilliseconds"}


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments], input=text)


def plan_of(*arguments: str, text: str | None = None) -> dict[str, Any]:
    done = run(*arguments, "-o", "json", text=text)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    return found


def without_clock(plan: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plan.items() if key not in CLOCK}


def test_equal_questions_have_equal_answers_in_json_and_yaml() -> None:
    """B37"""
    plan = plan_of(*SMALL)
    assert plan["feasible"]
    assert plan["devices"] <= 2
    assert plan["goodput"] > 0
    assert plan["attainment"] > 80
    assert without_clock(plan_of(*SMALL)) == without_clock(plan)
    assert without_clock(yaml.safe_load(run(*SMALL, "-o", "yaml").stdout)) == without_clock(plan)


def test_a_rate_is_held_by_the_fewest_devices_that_can() -> None:
    alone = plan_of(*QUESTION, "--gpus-per-node", "1")
    held = plan_of(*SMALL, "--nodes", "2", "--rate", str(0.8 * alone["goodput"]))
    assert held["feasible"]
    assert held["devices"] == 1
    assert held["colocated"]["replicas"] == 1
    assert held["kv"] is None


def test_only_leaves_the_other_kind_out() -> None:
    plan = plan_of(*SMALL, "--only", "disaggregated")
    assert plan["colocated"] is None
    assert plan["alternatives"]["colocated"] is None
    assert plan["prefill"]["tp"] * plan["prefill"]["pp"] * plan["prefill"]["replicas"] == 1
    assert plan["kv"]["bytes"] == pytest.approx(2 * 40 * 5120 * 2 * 512)
    assert plan["kv"]["link"] in {"node", "network"}


@pytest.mark.parametrize(
    "impossible", [("--rate", "1000"), ("--ttft-ms", "0.001"), ("--tpot-ms", "0.001"), ("--model", "opt-175b")]
)
def test_what_cannot_be_had_is_explained_and_no_error(impossible: tuple[str, str]) -> None:
    """B40"""
    plan = plan_of(*SMALL, *impossible)
    assert not plan["feasible"]
    assert plan["binding"]
    shown = run(*SMALL, *impossible)
    assert shown.exit_code == 0
    assert shown.stdout.startswith("Not feasible. ")


def test_devices_are_a_hard_bound() -> None:
    """B35"""
    plan = plan_of(*QUESTION, "--nodes", "3", "--gpus-per-node", "4", "--max-devices", "3", "--rate", "10")
    assert plan["devices"] <= 3


def test_a_table_begins_with_the_plan_and_only_that_goes_to_standard_output() -> None:
    done = run(*SMALL)
    assert done.exit_code == 0
    assert " devices, " in done.stdout.splitlines()[0]
    assert done.stderr == ""


def test_top_lists_so_many_candidates() -> None:
    assert plan_of(*SMALL, "--top", "0")["alternatives"]["top"] == []
    assert len(plan_of(*SMALL, "--top", "2")["alternatives"]["top"]) == 2


@pytest.mark.parametrize("load", [[], ["--rate", "2"]], ids=["per device", "for a rate"])
def test_top_measures_more_candidates_than_say_why(load: list[str]) -> None:
    usual = plan_of(*SMALL, *load)
    more = plan_of(*SMALL, *load, "--top", "7")
    assert more["shape"] == usual["shape"]
    shapes = [one["shape"] for one in more["alternatives"]["top"]]
    assert len(shapes) == 7 > len(usual["alternatives"]["top"])
    assert len(set(shapes)) == 7
    assert all(one["goodput"] > 0 for one in more["alternatives"]["top"])


def test_a_table_without_candidates_has_no_rows_of_them() -> None:
    assert "CANDIDATE" not in run(*SMALL, "--top", "0").stdout
    assert "CANDIDATE" in run(*SMALL, "--top", "1").stdout


RESOURCE = """
kind: DistServeDeployment
spec:
  mode: Plan
  model: {uri: "hf://facebook/opt-13b", dtype: FP16}
  slo: {ttftMilliseconds: 250, tpotMilliseconds: 100}
  workload:
    inputTokens: {distribution: Fixed, mean: 512}
    outputTokens: {distribution: Fixed, mean: 64}
  cluster: {deviceType: A100-80GB, maxDevices: 2}
"""


def test_a_resource_asks_the_same_question(tmp_path: Path) -> None:
    file = tmp_path / "cr.yaml"
    file.write_text(RESOURCE)
    options = ["--requests", "400", "--gpus-per-node", "2"]
    same = without_clock(plan_of(*SMALL, "--lengths", "lognormal:512,0,64,0"))
    assert without_clock(plan_of("-f", str(file), *options)) == same
    assert without_clock(plan_of("-f", "-", *options, text=RESOURCE)) == same


def test_a_resource_that_is_applied_asks_for_what_its_pods_can_hold() -> None:
    """They take 64 requests at once, fewer than the measured engine: its best rate has more in flight."""
    options = ["--requests", "400", "--gpus-per-node", "2"]
    most = plan_of("-f", "-", *options, text=RESOURCE)
    held = plan_of("-f", "-", *options, text=RESOURCE.replace("mode: Plan", "mode: Apply"))
    assert 0 < held["goodputPerDevice"] <= most["goodputPerDevice"]
    assert without_clock(held) != without_clock(most)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "opt-67b"], "--model opt-67b: model 'opt-67b' is not known: did you mean OPT-6.7B or OPT-66B"),
        (["--model", "/none/config.json"], "--model /none/config.json: it cannot be read: No such file"),
        (["--gpu", "A100"], "--gpu A100: device 'A100' is not known: did you mean A100-80GB"),
        (["--ttft-ms", "0"], "Invalid value for '--ttft-ms': '0' is no number of milliseconds: give a number above 0"),
        (["--tpot-ms", "-1"], "'--tpot-ms': '-1'"),
        (["--max-gap-ms", "nan"], "'--max-gap-ms': 'nan'"),
        (["--attainment", "0"], "'--attainment': '0' is no percentage: give a number above 0, at most 100"),
        (["--attainment", "100.1"], "'--attainment': '100.1'"),
        (["--rate", "0"], "'--rate': '0' is no rate in requests per second"),
        (["--rate", "1e-300"], "'--rate': '1e-300' is no rate in requests per second: give a number of at least 0.001"),
        (["--rate", "NaN"], "'--rate': 'NaN'"),
        (["--rate", "inf"], "'--rate': 'inf'"),
        (["--nodes", "0"], "'--nodes': '0' is no number of nodes: give a whole number of at least 1"),
        (["--gpus-per-node", "0"], "'--gpus-per-node': '0'"),
        (["--gpus-per-node", "2.5"], "'--gpus-per-node': '2.5'"),
        (["--link-gbps", "0"], "'--link-gbps': '0'"),
        (["--affinity", "Medium"], "'--affinity'"),
        (["--seed", "-1"], "'--seed': '-1'"),
        (
            ["--lengths", "fixed:2000,64"],
            "--lengths fixed:2000,64: a request has 2000 + 64 tokens, more than the model's",
        ),
        (["--lengths", "fixed:0,64"], "the prompt is 0: expected 1 to"),
        (["--lengths", "fixed:99999999999999999999,1"], "the prompt is 99999999999999999999: expected 1 to"),
        (
            ["--max-model-length", "99999"],
            "--max-model-length 99999: the context of OPT-13B has 2048 tokens: give no more",
        ),
        (
            ["--max-model-length", "100"],
            "a request has 512 + 64 tokens, more than --max-model-length 100: make it shorter or raise that",
        ),
        (["--lengths", "zipf"], "'zipf' names no lengths: expected FILE.csv, sharegpt, fixed:PROMPT,OUTPUT"),
        (["--lengths", "none.csv"], "none.csv cannot be read: No such file"),
        (["--arrivals", "gamma"], "--arrivals gamma: 'gamma' names no arrivals: expected poisson, gamma:CV or fixed"),
        (["--rule", "paper", "--only", "colocated"], "--only colocated: --rule paper knows no colocated fleets"),
        (["--profile", "/none"], "--profile /none: it cannot be read: No such file"),
        (["-f", "/none"], "/none"),
    ],
)
def test_bad_input_is_named_with_its_value_and_what_would_do(arguments: list[str], message: str) -> None:
    done = run(*SMALL, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("option", ["--model", "--profile", "-f"])
def test_a_file_that_is_nested_without_end_is_no_traceback(option: str, tmp_path: Path) -> None:
    """A parser runs out of stack."""
    file = tmp_path / "deep.json"
    file.write_text(("" if option == "--model" else "a: ") + 5000 * "[")
    done = run(*SMALL, option, str(file))
    assert done.exit_code == 2
    assert "it is nested too deeply: write it with fewer levels" in done.stderr


def test_a_resource_with_a_shape_of_its_own_is_for_simulate(tmp_path: Path) -> None:
    file = tmp_path / "cr.yaml"
    file.write_text(f"{RESOURCE}  placement: {{type: Manual, colocated: {{replicas: 2}}}}\n")
    done = run("-f", str(file))
    assert done.exit_code == 2
    assert "cr.yaml: spec.placement.type is Manual, whose shape is given: write Auto" in done.stderr
    simulated = ["simulate", "-f", str(file), "--colocated", "1,1,2", "--rates", "1", "--requests", "100"]
    assert CliRunner().invoke(main, simulated).exit_code == 0


def test_what_is_missing_is_named() -> None:
    assert "--model is missing: give it, or a resource with spec.model.uri by -f FILE" in run().stderr
    done = run("--model", "opt-13b", "--gpu", "A100-80GB", *TARGETS)
    assert done.exit_code == 2
    assert "--lengths is missing" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("deviceType: A100-80GB, ", "", "cr.yaml: spec.cluster.deviceType is missing: write it, or give --gpu"),
        ("dtype: FP16", "maxModelLength: 100", "tokens, more than spec.model.maxModelLength 100: make it shorter"),
        ("dtype: FP16", "maxModelLength: 9999", "cr.yaml: spec.model.maxModelLength 9999: the context of OPT-13B has"),
        ("mean: 512", "mean: 0", "cr.yaml: spec.workload.inputTokens.mean: 0 is no mean number of tokens"),
    ],
)
def test_what_is_wrong_in_a_resource_is_named_by_its_field(old: str, new: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "cr.yaml"
    file.write_text(RESOURCE.replace(old, new))
    done = run("-f", str(file))
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_resource_without_a_workload_lacks_it_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "cr.yaml"
    file.write_text(
        yaml.safe_dump({"kind": "DistServeDeployment", "spec": {"model": {"uri": "hf://facebook/opt-13b"}}})
    )
    done = run("-f", str(file), "--gpu", "A100-80GB", *TARGETS)
    assert "cr.yaml: spec.workload is missing: write it, or give --lengths" in done.stderr


def test_ten_thousand_devices_are_answered() -> None:
    plan = plan_of(*QUESTION, "--nodes", "1250", "--gpus-per-node", "8", "--rate", "50")
    assert plan["feasible"]
    assert plan["devices"] < 100


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["simulate", "--help"]])
def test_help_does_not_wait_for_the_simulator(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom distserve_cli.__main__ import main\n"
        f"assert CliRunner().invoke(main, {arguments}).exit_code == 0\n"
        "print([name for name in ('numba', 'numpy', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
