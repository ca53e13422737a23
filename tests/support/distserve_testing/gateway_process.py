"""A gateway process, and what clients do with it."""

import signal
import time
from pathlib import Path
from typing import Any, Final, Self

import httpx
import openai

from distserve_testing.processes import POLL_SECONDS, START_SECONDS, WAIT_SECONDS, LoopbackProcess

_DEFAULTS: Final = {"served-name": "test-model", "host": "127.0.0.1", "port": 0}


class GatewayProcess(LoopbackProcess):
    """One `python -m distserve_worker.gateway`; `flags` are named as on the command line, without the dashes."""

    def __init__(
        self, model: Path | str, workers: list[str], folder: Path, env: dict[str, str] | None = None, **flags: Any
    ) -> None:
        """Start it; `folder` gets its log and its termination log."""
        settings = {"model": model} | _DEFAULTS | {name.replace("_", "-"): value for name, value in flags.items()}
        repeated = [("worker", worker) for worker in workers]
        super().__init__("distserve_worker.gateway", "gateway", folder, [*settings.items(), *repeated], env)

    @property
    def host_and_port(self) -> tuple[str, int]:
        """For raw sockets."""
        host, _, port = self.http.rpartition(":")
        return host.strip("[]"), int(port)

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

    def wait_until_usable(self, pairs: int = 1) -> Self:
        """Until the tokenizer is loaded and so many pairs can be used."""
        until = time.monotonic() + START_SECONDS
        while self.get("/readyz").status_code != 200:
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(POLL_SECONDS)
        return self.wait_for(usable_pairs=pairs)

    def terminate(self) -> None:
        """What the kubelet does first."""
        self.process.send_signal(signal.SIGTERM)
