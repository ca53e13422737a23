"""Runs the measuring process, and ends it with whatever ends us."""

import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from typing import IO, Final

import click

from distserve_cli.planning.errors import BadInput
from distserve_cli.profiling.laws import Measured
from distserve_proto.contract import ExitReason
from distserve_worker.measuring.messages import (
    Failure,
    Message,
    MixedStep,
    Progress,
    Step,
    Subject,
    message_of,
)

MODULE: Final = "distserve_worker.measuring"
SILENCE_SECONDS: Final = 600.0  # it tells its progress with nearly each step; only loading says nothing for long
_END_SECONDS: Final = 10.0
_LAST_WORDS: Final = 800  # characters of its log
_ABOUT_MODEL: Final = frozenset({ExitReason.MODEL_NOT_FOUND, ExitReason.MODEL_INVALID, ExitReason.MODEL_DOES_NOT_FIT})


def measure(model: str, flags: Sequence[str], watch: Callable[[Progress], None]) -> Measured:
    """Everything the process measures; `watch` is told its progress.

    Raises:
        BadInput: model or flags are such that nothing can be measured.
        ClickException: the process died, with its reason.
    """
    subject: Subject | None = None
    steps: list[Step] = []
    mixed: list[MixedStep] = []
    with closing(_messages([sys.executable, "-m", MODULE, "--model", model, *flags])) as messages:
        for message in messages:
            match message:
                case Progress():
                    watch(message)
                case Subject():
                    subject = message
                case Step():
                    steps.append(message)
                case MixedStep():
                    mixed.append(message)
                case Failure(reason, text):
                    raise _refused(reason, text, model)
    assert subject is not None  # the process ended well, so it has told
    prefill, decode = (tuple(step for step in steps if step.phase == phase) for phase in ("prefill", "decode"))
    return Measured(subject, prefill, decode, tuple(mixed))


def _messages(command: Sequence[str]) -> Generator[Message]:
    with tempfile.TemporaryFile() as log:
        # unbuffered: `select` must see every line that is not read yet
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, bufsize=0, text=False
        )
        assert process.stdout is not None
        try:
            for line in _lines(process.stdout):
                yield message_of(line)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
        except ValueError as error:
            raise click.ClickException(str(error)) from error
        finally:
            _end(process)
        if process.returncode != 0:
            raise click.ClickException(f"the measuring process {_ending(process.returncode)}{_last_words(log)}")


def _lines(stream: IO[bytes]) -> Iterator[str]:
    while True:
        if not select.select([stream], [], [], SILENCE_SECONDS)[0]:
            raise click.ClickException(f"the measuring process has said nothing for {SILENCE_SECONDS:g} s")
        line = stream.readline()
        if not line:
            return
        yield line.decode()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _refused(reason: str, text: str, model: str) -> click.ClickException:
    if reason in _ABOUT_MODEL:
        return BadInput(f"--model {model}: {text}")
    if reason == ExitReason.CONFIGURATION_INVALID:
        return BadInput(text)
    return click.ClickException(f"the engine failed while it was measured: {text}")


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    name = signal.Signals(-status).name
    return f"was ended by {name}" + (", as when memory runs out" if -status == signal.SIGKILL else "")


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    text = log.read().decode(errors="replace").strip()
    return f"; its last words:\n{text[-_LAST_WORDS:]}" if text else ""
