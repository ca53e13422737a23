"""`python -m distserve_worker.measuring`: what it tells, how it fails, and that it ends when nobody listens."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distserve_worker.measuring.batches import Batch
from distserve_worker.measuring.medians import step_of
from distserve_worker.measuring.messages import (
    Failure,
    Message,
    MixedStep,
    Progress,
    Step,
    Subject,
    line_of,
    message_of,
)
from distserve_worker.measuring.surveying import Sample

SECONDS = 120


def start(*arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "distserve_worker.measuring", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments: object) -> tuple[int, list[Message], str]:
    process = start(*arguments)
    output, errors = process.communicate(timeout=SECONDS)
    return process.returncode, [message_of(line) for line in output.splitlines()], errors


def test_it_tells_the_subject_then_its_progress_and_the_steps_of_both_phases(tiny: Path) -> None:
    status, messages, errors = run("--model", tiny, "--seconds", 3, "--temperature", 0)
    assert status == 0, errors
    subjects = [message for message in messages if isinstance(message, Subject)]
    assert [(one.device, one.threads, one.temperature, one.longest_request) for one in subjects] == [("CPU", 1, 0, 256)]
    shares = [message.share for message in messages if isinstance(message, Progress)]
    assert shares == sorted(shares)
    assert 0 == shares[0] <= shares[-1] <= 1
    steps = [message for message in messages if isinstance(message, Step)]
    assert [step.phase for step in steps] == sorted((step.phase for step in steps), reverse=True)
    for phase in ("prefill", "decode"):
        own = [step for step in steps if step.phase == phase]
        assert len(own) >= 4
        assert len({(step.requests, step.tokens, step.squares) for step in own}) == len(own)
    assert all(step.seconds > 0 and step.host_seconds > 0 and step.repetitions >= 1 for step in steps)
    mixed = [message for message in messages if isinstance(message, MixedStep)]
    assert len({(step.requests, step.before, step.chunk) for step in mixed}) == len(mixed) != 1
    assert all(step.seconds > 0 and step.alone > 0 and step.repetitions >= 1 for step in mixed)


BILLIONS = {
    "model_type": "llama",
    "num_hidden_layers": 4000,
    "hidden_size": 65536,
    "num_attention_heads": 64,
    "intermediate_size": 65536,
    "vocab_size": 1000,
    "max_position_embeddings": 1000,
    "rms_norm_eps": 1e-5,
}


def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_looked_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(BILLIONS))
    status, messages, _ = run("--model", tmp_path)
    assert status == 1
    (failure,) = messages
    assert isinstance(failure, Failure)
    assert failure.reason == "ModelDoesNotFit"
    assert "of memory are free: give a smaller model" in failure.text


@pytest.mark.parametrize(
    ("arguments", "reason", "text"),
    [
        (["--model", "/none"], "ModelNotFound", "/none: no such file or folder"),
        (["--model", __file__], "ModelInvalid", "not a GGUF file"),
        (["--model", "/none", "--threads", "1000"], "ConfigurationInvalid", "--threads 1000: "),
        (["--model", "/none", "--seconds", "nan"], "ConfigurationInvalid", "argument --seconds: nan is not in"),
        (["--model", "/none", "--dtype", "FP8"], "ConfigurationInvalid", "argument --dtype: invalid choice: 'FP8'"),
        (["--model", "/none", "--device", "TPU"], "ConfigurationInvalid", "argument --device: invalid choice: 'TPU'"),
        ([], "ConfigurationInvalid", "--model"),
    ],
)
def test_what_is_wrong_is_the_only_thing_it_tells(arguments: list[str], reason: str, text: str) -> None:
    status, messages, _ = run(*arguments)
    assert status == 1
    (failure,) = messages
    assert isinstance(failure, Failure)
    assert failure.reason == reason
    assert text in failure.text


def test_too_few_seconds_are_refused_with_how_many_would_do(smollm2_path: Path) -> None:
    status, messages, _ = run("--model", smollm2_path, "--seconds", 0.1)
    assert status == 1
    failure = messages[-1]
    assert isinstance(failure, Failure)
    assert failure.reason == "ConfigurationInvalid"
    assert "--seconds 0.1: is enough for 1 of the 4 different prefill steps" in failure.text


def test_it_ends_without_a_word_when_nobody_listens(tiny: Path) -> None:
    process = start("--model", tiny, "--seconds", 600)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(SECONDS) == 1
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


MESSAGES = [
    Subject("CPU", "A CPU", 2, 0.5, 8192, 1000, 64),
    Progress(0.25, "prefill"),
    Step("decode", 2, 64, 2048, 0.1, 0.01, 0.02, 7),
    MixedStep(4, 68, 0, 32, 0.2, 0.1, 0.02, 7),
    Failure("EngineFailed", "a\nb"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_as_it_was_told(message: Message) -> None:
    line = line_of(message)
    assert "\n" not in line
    assert message_of(line) == message


@pytest.mark.parametrize("line", ["", "warning: x", "[]", '{"kind": "other"}', '{"kind": "progress"}', '{"share": 1}'])
def test_a_line_that_is_no_message_is_shown(line: str) -> None:
    with pytest.raises(ValueError, match="is no message of the measuring process"):
        message_of(line)


def test_a_step_is_the_median_of_its_calmer_half() -> None:
    calm: list[Any] = [Sample(seconds, 0.1, 0.01) for seconds in (1.0, 1.1, 1.2)]
    disturbed = [Sample(3.0, 0.5, 0.6), Sample(2.0, 0.5, 0.4)]
    step = step_of(Batch("decode", (3, 4)), [*disturbed, *calm])
    assert (step.requests, step.tokens, step.squares, step.repetitions) == (2, 7, 25, 5)
    assert (step.seconds, step.host_seconds) == (1.1, 0.1)
    assert step.spread == pytest.approx(0.1 / 1.1)
