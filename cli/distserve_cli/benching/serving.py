"""A gateway in front of a prefill and a decode worker, as processes, for as long as a benchmark runs."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import click

NAME: Final = "benched"
_START_SECONDS: Final = 180.0
_REQUEST_SECONDS: Final = 120.0
_END_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1
_PORTS: Final = ("--grpc-port", "0", "--data-port", "0", "--http-port", "0")


class Served:
    """The gateway's API."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}"

    def complete(self, prompt: Sequence[int], tokens: int) -> dict[str, Any]:
        """Our own part of the answer to one greedy completion of exactly so many tokens. Raises OSError."""
        body = {"model": NAME, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(  # noqa: S310 - an address of our own
            f"{self._url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as response:  # noqa: S310
            answer: dict[str, Any] = json.load(response)
        report: dict[str, Any] = answer["distserve"]
        return report

    def wait_until_usable(self) -> None:
        """Until a request would be served. Raises `ClickException` at the deadline."""
        until = time.monotonic() + _START_SECONDS
        while not self._lists_the_model():
            if time.monotonic() > until:
                raise click.ClickException(f"the gateway has no pair of workers after {_START_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    def _lists_the_model(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/v1/models", timeout=_REQUEST_SECONDS) as response:  # noqa: S310
                return bool(json.load(response)["data"])
        except (urllib.error.URLError, TimeoutError):
            return False


@contextmanager
def serving(model: Path) -> Iterator[Served]:
    """Start all three, end all three. Raises `ClickException` with the log of one that does not start."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="distserve-bench-")))
        local = ("--host", "127.0.0.1", "--served-name", NAME, "--model", str(model))
        workers = [
            stack.enter_context(
                _process("server", role, folder, *local, "--advertise-host", "127.0.0.1", "--role", role, *_PORTS)
            )["grpc"]
            for role in ("prefill", "decode")
        ]
        named = [word for worker in workers for word in ("--worker", worker)]
        gateway = stack.enter_context(_process("gateway", "gateway", folder, *local, "--port", "0", *named))
        served = Served(gateway["http"])
        served.wait_until_usable()
        yield served


@contextmanager
def _process(module: str, name: str, folder: Path, *flags: str) -> Iterator[dict[str, str]]:
    """One of our processes; what it announces."""
    log, reason = folder / f"{name}.log", folder / f"{name}.reason"
    command = [sys.executable, "-m", f"distserve_worker.{module}", "--termination-log", str(reason), *flags]
    threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=output, env=os.environ | {"DISTSERVE_THREADS": threads}
        )
    try:
        yield _announced(process, name, log)
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _announced(process: "subprocess.Popen[bytes]", name: str, log: Path) -> dict[str, str]:
    assert process.stdout is not None, "it is a pipe"
    readable, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
    line = process.stdout.readline() if readable else b""
    if not line:
        raise click.ClickException(f"the {name} did not start:\n{log.read_text(errors='replace')}")
    announced: dict[str, str] = json.loads(line)
    return announced
