"""One of our processes as an operator starts it, on loopback with free ports."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import httpx

from distserve_testing.forking import Forked

START_SECONDS: Final = 120
WAIT_SECONDS: Final = 60
POLL_SECONDS: Final = 0.05


class LoopbackProcess:
    """One `python -m MODULE` that announces where it listens in its first line and has `/metrics`."""

    def __init__(
        self,
        module: str,
        name: str,
        folder: Path,
        flags: Iterable[tuple[str, Any]],
        env: Mapping[str, str] | None = None,
        *,
        forked: bool = False,
    ) -> None:
        """Start it; `folder` gets its log and its termination log, flags are named without their dashes.

        `forked`: from a process that has read torch already.
        """
        self.name = name
        self.log = folder / f"{name}-{time.monotonic_ns()}.log"
        self.log.touch()  # it can be read at once
        self.termination_log = self.log.with_suffix(".reason")
        arguments: list[str] = []
        for flag, value in [("termination-log", self.termination_log), *flags]:
            arguments += [f"--{flag.replace('_', '-')}", str(value)]
        start = Forked if forked else _executed
        self.process = start(module, arguments, self.log, os.environ if env is None else env)
        self._listening: dict[str, str] | None = None

    @property
    def listening(self) -> dict[str, str]:
        """Where it listens, as the process announced it; waits for that."""
        if self._listening is None:
            self._listening = json.loads(self._first_line())
        return self._listening

    @property
    def http(self) -> str:
        """`host:port` of its HTTP side."""
        return self.listening["http"]

    @property
    def url(self) -> str:
        """Base URL of its HTTP side, without a path."""
        return f"http://{self.http}"

    def get(self, path: str) -> httpx.Response:
        """One GET."""
        return httpx.get(f"{self.url}{path}", timeout=WAIT_SECONDS)

    def metrics(self) -> dict[str, float]:
        """Metrics by name with labels, as the process shows them now."""
        lines = self.get("/metrics").text.splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name.removeprefix("distserve_"): float(value) for name, _, value in pairs}

    def wait_for(self, **expected: float) -> Self:
        """Until the named metrics have the expected values; fails with what they are instead."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            metrics = self.metrics()
            seen = {name: metrics.get(name) for name in expected}
            if seen == expected:
                return self
            assert time.monotonic() < until, f"expected {expected}, there is {seen}\n{self.log.read_text()}"
            time.sleep(POLL_SECONDS)

    def exit_status(self) -> int:
        """Wait for the end, perhaps for the start before."""
        return self.process.wait(START_SECONDS)

    def kill(self) -> None:
        """kill -9, if it still runs."""
        self.process.kill()
        self.process.wait(WAIT_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _first_line(self) -> bytes:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if readable else b""
        assert line, f"the {self.name} did not start:\n{self.log.read_text()}"
        return line


def _executed(module: str, arguments: Sequence[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", module, *arguments]
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, env=env)
