"""Worker processes as an operator starts them, on loopback with free ports."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Literal

import httpx

START_SECONDS: Final = 120
WAIT_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.05


class WorkerProcess:
    """One `python -m distserve_worker.server`; `flags` are named as on the command line, without the dashes."""

    def __init__(self, role: Literal["prefill", "decode"], model: Path | str, folder: Path, **flags: Any) -> None:
        """Start it; `folder` gets its log and its termination log."""
        self.log = folder / f"{role}-{time.monotonic_ns()}.log"
        self.termination_log = self.log.with_suffix(".reason")
        settings: dict[str, Any] = {
            "role": role,
            "model": model,
            "served-name": "test-model",
            "host": "127.0.0.1",
            "advertise-host": "127.0.0.1",
            "grpc-port": 0,
            "data-port": 0,
            "http-port": 0,
            "termination-log": self.termination_log,
        }
        settings |= {name.replace("_", "-"): value for name, value in flags.items()}
        command = [sys.executable, "-m", "distserve_worker.server"]
        for name, value in settings.items():
            command += [f"--{name}", str(value)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=os.environ | {"DISTSERVE_THREADS": "1"}
            )
        self._listening: dict[str, str] | None = None

    @property
    def listening(self) -> dict[str, str]:
        """Addresses and incarnation, as the process announced them; waits for that."""
        if self._listening is None:
            self._listening = json.loads(self._first_line())
        return self._listening

    @property
    def grpc(self) -> str:
        """Address of the gRPC services."""
        return self.listening["grpc"]

    def port(self, name: str) -> int:
        """One of the ports `grpc`, `data`, `http`."""
        return int(self.listening[name].rpartition(":")[2])

    def get(self, path: str) -> httpx.Response:
        """One answer of the HTTP port."""
        return httpx.get(f"http://{self.listening['http']}{path}", timeout=WAIT_SECONDS)

    def metrics(self) -> dict[str, float]:
        """Metrics by name with labels, as the process shows them now."""
        lines = self.get("/metrics").text.splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name.removeprefix("distserve_"): float(value) for name, _, value in pairs}

    def wait_for(self, **expected: float) -> None:
        """Until the named metrics have the expected values; fails with what they are instead."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            metrics = self.metrics()
            seen = {name: metrics[name] for name in expected}
            if seen == expected:
                return
            assert time.monotonic() < until, f"expected {expected}, there is {seen}\n{self.log.read_text()}"
            time.sleep(_POLL_SECONDS)

    def wait_until_empty(self) -> None:
        """Until nothing is held for anybody."""
        self.wait_for(kv_blocks_held=0, requests_waiting=0, requests_running=0, requests_parked=0)

    def exit_status(self) -> int:
        """Wait for the end."""
        return self.process.wait(WAIT_SECONDS)

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
        assert line, f"the worker did not start:\n{self.log.read_text()}"
        return line
