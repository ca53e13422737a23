"""`distserve profile` with the real engine: what it shows, what it writes, and that plans use it.

How well a law fits depends on what else the machine does, so a poor fit is an answer here; it has to be said, though.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from distserve_cli.__main__ import main
from distserve_operator.placement.catalogue.configs import model_from_config
from distserve_operator.placement.catalogue.devices import device
from distserve_operator.placement.catalogue.models import model_shape
from distserve_operator.placement.latency.choosing import latency_model
from distserve_operator.placement.latency.fit_error import decode_errors, mixed_errors, prefill_errors
from distserve_operator.placement.latency.profile import Profile
from distserve_operator.placement.latency.profile_parsing import parse_profile, read_profile
from distserve_operator.placement.latency.profile_writing import write_profile
from distserve_operator.placement.latency.saturation import saturating_tokens

CPU = device("CPU")
_MOST_TRIES = 3


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["profile", *map(str, arguments)])


def measured(*arguments: object) -> Result:
    """The result of a run that measured something; where the machine was too busy, of one as long as the error says."""
    done = run(*arguments)
    for _ in range(_MOST_TRIES):
        more = re.search(r"--seconds (\S+): is enough for .*; give about (\d+)", done.output)
        if more is None:
            break
        assert float(more[2]) > float(more[1])
        done = run(*arguments, "--seconds", more[2])
    assert done.exit_code in (0, 1), done.output
    assert done.exit_code == 0 or "the fit is poor, plans refuse it without --allow-poor-fit" in done.stderr
    return done


def require_sane(profile: Profile, shown: dict[str, Any]) -> None:
    """Laws and points that can be, and the same ones on the screen as in the file."""
    (tp,) = profile.laws
    law, points = profile.laws[tp], profile.points[tp]
    assert tp == shown["tensorParallelism"] == 1
    for phase, kernels, errors in (
        ("prefill", [point.seconds for point in points.prefill], prefill_errors(law, points.prefill)),
        ("decode", [point.seconds for point in points.decode], decode_errors(law, points.decode)),
    ):
        steps = shown[phase]["steps"]
        assert len(steps) >= 4
        for step, seconds, error in zip(steps, kernels, errors, strict=True):
            assert 0 < step["measured"] <= step["step"]
            assert step["measured"] == pytest.approx(1000 * seconds, rel=1e-4)
            assert step["fitted"] == pytest.approx(step["measured"] * (1 + error), rel=1e-4)
            assert step["error"] == pytest.approx(100 * error, abs=0.01)
        assert shown[phase]["worstError"] == max(abs(step["error"]) for step in steps)
        assert 0 <= shown[phase]["meanError"] <= shown[phase]["worstError"]
    mixed = shown["mixed"]["steps"]
    errors = mixed_errors(law, profile.overlap, points.mixed)
    for step, point, error in zip(mixed, points.mixed, errors, strict=True):
        assert (step["before"], step["tokens"]) == (point.before, point.chunk)
        assert 0 < step["alone"] <= step["step"] == pytest.approx(1000 * point.seconds, rel=1e-4)
        assert step["fitted"] == pytest.approx(step["step"] * (1 + error), rel=1e-4)
    assert 0 <= profile.overlap <= 1
    assert shown["chunkOverlap"] == (pytest.approx(profile.overlap, abs=1e-5) if mixed else None)
    assert [point.tokens for point in points.prefill] == [step["tokens"] for step in shown["prefill"]["steps"]]
    assert [point.batch for point in points.decode] == [step["requests"] for step in shown["decode"]["steps"]]
    assert 1 <= shown["saturatingTokens"] == saturating_tokens(law)
    assert law.host.per_batch > 0
    assert law.host.per_step + law.host.per_step_request > 0
    assert parse_profile(write_profile(profile)) == profile


def test_a_tiny_model_is_profiled_into_a_file_that_a_plan_takes(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "profile.yaml"
    for seconds in (4, 12, 36):  # a machine that is busy with something else comes to few steps, mixed ones last
        done = measured("--model", tiny, "--seconds", seconds, "--dtype", "BF16", "--output", file, "-o", "json")
        if len(json.loads(done.stdout)["mixed"]["steps"]) >= 2:
            break
    profile = parse_profile(file.read_text())
    assert (profile.engine, profile.device, profile.model) == ("distserve", "CPU", "tiny-llama")
    assert profile.weight_type == "BF16"
    shown = json.loads(done.stdout)
    require_sane(profile, shown)
    assert len(shown["mixed"]["steps"]) >= 2
    model = model_from_config(json.loads((tiny / "config.json").read_text()), tiny.name, "BF16")
    latency = latency_model(model, CPU, profile=profile, allow_poor_fit=True)
    assert latency.source.startswith("measured profile of tiny-llama on CPU, engine distserve: distserve profile on ")
    assert list(latency.laws) == [1]
    options = ["--gpu", "CPU", "--gpus-per-node", "2", "--ttft-ms", "1000", "--tpot-ms", "100", "--requests", "200"]
    question = ["--model", str(tiny), "--dtype", "BF16", "--lengths", "fixed:64,16", "--profile", str(file), *options]
    plan = CliRunner().invoke(main, ["plan", *question, "--allow-poor-fit", "-o", "json"])
    assert plan.exit_code == 0, plan.output
    assert json.loads(plan.stdout)["latencySource"] == latency.source


def test_smollm2_is_profiled_under_the_name_that_plans_know(smollm2_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "profile.yaml"
    done = measured("--model", smollm2_path, "--seconds", 15, "--output", file, "-o", "json")
    shown = json.loads(done.stdout)
    text = file.read_text()
    profile = parse_profile(text)
    if done.exit_code == 0:
        assert read_profile(text) == profile
        assert shown["problems"] == []
    assert profile.model == shown["model"] == "SmolLM2-135M"
    require_sane(profile, shown)
    latency = latency_model(model_shape("smollm2-135m", "FP32"), CPU, profile=profile, allow_poor_fit=True)
    assert latency.source.startswith("measured profile of SmolLM2-135M on CPU")
    assert latency.rules.decode_requests == 64


def test_a_config_map_goes_to_standard_output_and_the_table_does_not(tiny: Path) -> None:
    done = measured("--model", tiny, "--seconds", 2, "--config-map", "tiny.profile", "--namespace", "chat")
    manifest = yaml.safe_load(done.stdout)
    assert manifest["kind"] == "ConfigMap"
    assert manifest["metadata"] == {"name": "tiny.profile", "namespace": "chat"}
    assert parse_profile(done.stdout).model == "tiny-llama"
    for text in (
        "tiny-llama in FP32 on CPU",
        "FITTED ms",
        "mean error ",
        "overlap",
        "L_m",
        "tensor parallelism 1 only",
    ):
        assert text in done.stderr


def test_a_table_ends_with_what_to_do_next(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "my profile.yaml"
    done = measured("--model", tiny, "--seconds", 2, "--config-map", "tiny", "--output", file)
    last = done.stdout.splitlines()[-1]
    assert f"distserve plan --model {tiny} --dtype FP32 --gpu CPU --profile '{file}' …" in last
    assert yaml.safe_load(file.read_text())["metadata"] == {"name": "tiny"}


MODEL = ["--model", "/none"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '--model'"),
        (MODEL, "--model /none: no such file or folder; give a GGUF file or a folder of Hugging Face"),
        (["--model", __file__], "not a GGUF file (it does not start with GGUF); give a model that workers can serve"),
        ([*MODEL, "--seconds", "0"], "'--seconds': '0' is no number of seconds: give a number of at least 1"),
        ([*MODEL, "--seconds", "-1"], "'--seconds': '-1'"),
        ([*MODEL, "--seconds", "nan"], "'--seconds': 'nan'"),
        ([*MODEL, "--threads", "0"], "'--threads': '0' is no number of threads"),
        ([*MODEL, "--temperature", "3"], "'--temperature': '3' is no temperature"),
        ([*MODEL, "--device", "TPU"], "'--device': 'TPU' is not one of 'CPU', 'auto'"),
        ([*MODEL, "--dtype", "FP8"], "'--dtype': 'FP8' is not one of 'FP32', 'BF16', 'FP16', 'INT8'"),
        ([*MODEL, "--output", "/none/p.yaml"], "--output /none/p.yaml: there is no folder /none: make it, or give"),
        ([*MODEL, "--output", "/"], "--output /: is a folder: give a file in it"),
        ([*MODEL, "--config-map", "Mine"], "--config-map Mine: is no name of an object: give lower-case letters"),
        ([*MODEL, "--config-map", "a..b"], "--config-map a..b: "),
        ([*MODEL, "--config-map", "a" * 254], ": is no name of an object"),
        ([*MODEL, "--config-map", "a", "--namespace", "a.b"], "--namespace a.b: is no name of a namespace"),
        ([*MODEL, "--namespace", "chat"], "--namespace chat: is for a ConfigMap only: give --config-map NAME"),
    ],
)
def test_bad_input_is_named_with_its_value_and_what_would_do(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_what_only_the_measuring_process_finds_is_bad_input_too(tiny: Path) -> None:
    done = run("--model", tiny, "--threads", "1000")
    assert done.exit_code == 2
    assert "--threads 1000: " in done.stderr
    assert "CPUs can be used here; give at most so many" in done.stderr
