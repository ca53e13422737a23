"""Worker processes and pairs of them."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import httpx
import psutil

from distserve_testing.processes import POLL_SECONDS, START_SECONDS, WAIT_SECONDS, LoopbackProcess

_DEFAULTS: Final = {
    "served-name": "test-model",
    "host": "127.0.0.1",
    "advertise-host": "127.0.0.1",
    "grpc-port": 0,
    "data-port": 0,
    "http-port": 0,
}


class WorkerProcess(LoopbackProcess):
    """One `python -m distserve_worker.server`; `flags` are named as on the command line, without the dashes."""

    def __init__(
        self,
        role: Literal["prefill", "decode", "colocated"],
        model: Path | str,
        folder: Path,
        *,
        forked: bool = True,
        **flags: Any,
    ) -> None:
        """Start it, from a process that has read torch already or as an operator does; `folder` gets its logs."""
        given = {name.replace("_", "-"): value for name, value in flags.items()}
        settings = {"role": role, "model": model} | _DEFAULTS | given
        env = os.environ | {"DISTSERVE_THREADS": "1"}
        super().__init__("distserve_worker.server", role, folder, settings.items(), env, forked=forked)

    @property
    def grpc(self) -> str:
        """Address of the gRPC services."""
        return self.listening["grpc"]

    def port(self, name: str) -> int:
        """One of the ports `grpc`, `data`, `http`."""
        return int(self.listening[name].rpartition(":")[2])

    @cached_property
    def first_port(self) -> str:
        """`host:port` of its HTTP side, the only port that it has while it loads; waits for that."""
        process, until = psutil.Process(self.process.pid), time.monotonic() + START_SECONDS
        while not (listening := [c.laddr for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]):
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(POLL_SECONDS)
        [address] = listening
        return f"{address.ip}:{address.port}"

    def probe(self, path: str) -> httpx.Response:
        """One GET, also before it has announced where it listens; a busy machine may take long to answer."""
        return httpx.get(f"http://{self.first_port}{path}", timeout=WAIT_SECONDS)

    def wait_until_empty(self) -> None:
        """Until nothing is held for anybody."""
        self.wait_for(kv_blocks_held=0, requests_waiting=0, requests_running=0, requests_parked=0)


class Pair(NamedTuple):
    """A prefill and a decode worker of one model."""

    prefill: WorkerProcess
    decode: WorkerProcess

    @property
    def addresses(self) -> list[str]:
        """Where their gRPC services are."""
        return [worker.grpc for worker in self]

    @contextmanager
    def left_empty(self) -> Iterator["Pair"]:
        """For one test, which must leave nothing in them."""
        yield self
        for worker in self:
            worker.wait_until_empty()


@contextmanager
def started_pair(model: Path, folder: Path, prefill: dict[str, Any], decode: dict[str, Any]) -> Iterator[Pair]:
    """A pair with these flags, killed at the end."""
    pair = Pair(WorkerProcess("prefill", model, folder, **prefill), WorkerProcess("decode", model, folder, **decode))
    try:
        yield pair
    finally:
        for worker in pair:
            worker.kill()
