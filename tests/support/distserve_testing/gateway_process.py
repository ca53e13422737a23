"""A gateway process as an operator starts it, on loopback with a free port."""

import json
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import httpx
import openai

START_SECONDS: Final = 60
WAIT_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.05


class GatewayProcess:
    """One `python -m distserve_worker.gateway`; `flags` are named as on the command line, without the dashes."""

    def __init__(
        self, model: Path | str, workers: list[str], folder: Path, env: dict[str, str] | None = None, **flags: Any
    ) -> None:
        """Start it; `folder` gets its log and its termination log."""
        self.log = folder / f"gateway-{time.monotonic_ns()}.log"
        self.termination_log = self.log.with_suffix(".reason")
        settings: dict[str, Any] = {
            "model": model,
            "served-name": "test-model",
            "host": "127.0.0.1",
            "port": 0,
            "termination-log": self.termination_log,
        }
        settings |= {name.replace("_", "-"): value for name, value in flags.items()}
        command = [sys.executable, "-m", "distserve_worker.gateway"]
        for name, value in [*settings.items(), *(("worker", worker) for worker in workers)]:
            command += [f"--{name}", str(value)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=env)
        self._address: str | None = None

    @property
    def address(self) -> str:
        """`host:port`, as the process announced it; waits for that."""
        if self._address is None:
            self._address = json.loads(self._first_line())["listening"]
        return self._address

    @property
    def url(self) -> str:
        """Base URL without a path."""
        return f"http://{self.address}"

    @property
    def host_and_port(self) -> tuple[str, int]:
        """For raw sockets."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)

    def get(self, path: str) -> httpx.Response:
        """One GET."""
        return httpx.get(f"{self.url}{path}", timeout=WAIT_SECONDS)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """One POST of a JSON body."""
        return httpx.post(f"{self.url}{path}", json=body, timeout=WAIT_SECONDS, **options)

    def complete(self, prompt: Any = "Once upon a time", **fields: Any) -> httpx.Response:
        """One completion, greedy and up to 8 tokens unless `fields` say otherwise."""
        body = {"model": "test-model", "prompt": prompt, "max_tokens": 8, "temperature": 0} | fields
        return self.post("/v1/completions", {name: value for name, value in body.items() if value is not None})

    def openai(self, **options: Any) -> openai.OpenAI:
        """OpenAI's own client; it does not try again by itself."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=WAIT_SECONDS, **options)

    def metrics(self) -> dict[str, float]:
        """Metrics by name with labels, as the process shows them now."""
        lines = self.get("/metrics").text.splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name.removeprefix("distserve_"): float(value) for name, _, value in pairs}

    def wait_for(self, **expected: float) -> "GatewayProcess":
        """Until the named metrics have the expected values; fails with what they are instead."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            metrics = self.metrics()
            seen = {name: metrics.get(name) for name in expected}
            if seen == expected:
                return self
            assert time.monotonic() < until, f"expected {expected}, there is {seen}\n{self.log.read_text()}"
            time.sleep(_POLL_SECONDS)

    def wait_until_usable(self, pairs: int = 1) -> "GatewayProcess":
        """Until the tokenizer is loaded and so many pairs can be used."""
        until = time.monotonic() + START_SECONDS
        while self.get("/readyz").status_code != 200:
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(_POLL_SECONDS)
        return self.wait_for(usable_pairs=pairs)

    def terminate(self) -> None:
        """What the kubelet does first."""
        self.process.send_signal(signal.SIGTERM)

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
        assert line, f"the gateway did not start:\n{self.log.read_text()}"
        return line
