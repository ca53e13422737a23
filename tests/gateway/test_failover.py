"""Workers that die, hang, restart or are not there."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.streaming import Stream, start_streams
from distserve_testing.workers import WorkerProcess

StartGateway = Callable[..., GatewayProcess]
GREEDY = {"model": "test-model", "prompt": "hello", "max_tokens": 600, "ignore_eos": True, "stream": True}
# Among all tokens of a model with random weights the smallest rounding error, as between prefill and decode, changes
# which token a random number falls on; among the best 8 it does not.
SAMPLED = GREEDY | {"temperature": 1.0, "top_k": 8, "seed": 4}
PENALIZED = GREEDY | {"temperature": 0, "frequency_penalty": 0.7, "repetition_penalty": 1.2}
WAIT_SECONDS = 60


class Fleet:
    """Two prefill and two decode workers; those that a test has ended are replaced for the next one."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self.prefills = [self._start("prefill") for _ in range(2)]
        self.decodes = [self._start("decode") for _ in range(2)]

    def replace_dead(self) -> None:
        """Start a new worker for each that has ended."""
        for role, workers in (("prefill", self.prefills), ("decode", self.decodes)):
            for place, worker in enumerate(workers):
                if worker.process.poll() is not None:
                    worker.kill()
                    workers[place] = self._start(role)

    def restart(self, decode: WorkerProcess) -> None:
        """Start a decode worker at the address of one that has ended."""
        self.decodes[self.decodes.index(decode)] = self._start("decode", grpc_port=decode.port("grpc"))

    def busy_decode(self) -> WorkerProcess:
        """The decode worker that runs a request."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            for worker in self.decodes:
                if worker.metrics()["requests_running"]:
                    return worker
            assert time.monotonic() < until, "no request is decoded"

    def kill(self) -> None:
        """End all workers."""
        for worker in (*self.prefills, *self.decodes):
            worker.kill()

    def _start(self, role: Any, **flags: Any) -> WorkerProcess:
        limits: dict[str, Any] = {"max_model_length": 4096, "kv_cache_memory": "64Mi", "max_batch_tokens": 256}
        return WorkerProcess(role, self._model, self._folder, **limits | flags)


@pytest.fixture(scope="module")
def all_workers(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tiny_llama, tmp_path_factory.mktemp("fleet"))
    yield fleet
    fleet.kill()


@pytest.fixture
def fleet(all_workers: Fleet) -> Fleet:
    all_workers.replace_dead()
    return all_workers


async def _run(gateway: GatewayProcess, *bodies: dict[str, Any]) -> list[Stream]:
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        return list(await asyncio.gather(*(Stream(body).run(client) for body in bodies)))


@pytest.mark.parametrize(
    "body", [GREEDY | {"temperature": 0}, SAMPLED, PENALIZED], ids=["greedy", "sampled", "penalized"]
)
async def test_a_request_moves_from_a_dead_decode_worker_without_losing_or_repeating_a_token(
    fleet: Fleet, start_gateway: StartGateway, body: dict[str, Any]
) -> None:
    """B13: the text is that of an undisturbed run, sampled tokens included."""
    gateway = start_gateway(fleet.prefills[0], *fleet.decodes).wait_until_usable(pairs=2)
    [undisturbed] = await _run(gateway, body)
    assert undisturbed.ended_well
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        [moving] = await start_streams(client, [body])
        fleet.busy_decode().kill()
        moved = await moving
    assert moved.ended_well
    assert moved.text == undisturbed.text
    assert gateway.metrics()['retries_total{reason="stream_lost"}'] == 1


async def test_without_another_pair_every_stream_ends_with_a_typed_error(
    fleet: Fleet, start_gateway: StartGateway
) -> None:
    """B3: an SSE error object after the first byte, and the surviving side frees what it held."""
    prefill, decode = fleet.prefills[0], fleet.decodes[0]
    gateway = start_gateway(prefill, decode).wait_until_usable()
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        tasks = await start_streams(client, [SAMPLED | {"seed": seed, "max_tokens": 3000} for seed in range(8)])
        decode.kill()
        streams = await asyncio.gather(*tasks)
    assert all(stream.status == 200 and stream.ended_with_typed_error for stream in streams)
    assert not any(stream.ended_with_done for stream in streams)
    assert {stream.error["code"] for stream in streams if stream.error} == {"worker_failed"}
    prefill.wait_until_empty()


async def test_a_decode_leg_does_not_need_its_prefill_worker_any_more(
    fleet: Fleet, start_gateway: StartGateway
) -> None:
    prefill, decode = fleet.prefills[0], fleet.decodes[0]
    gateway = start_gateway(prefill, decode).wait_until_usable()
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        [running] = await start_streams(client, [SAMPLED])
        decode.wait_for(requests_running=1)
        prefill.kill()
        assert (await running).ended_well


def test_without_a_usable_pair_the_answer_is_503_with_a_reason(fleet: Fleet, start_gateway: StartGateway) -> None:
    """B1 and B17: nothing is served on one side only, nothing is listed."""
    gateway = start_gateway(fleet.prefills[0]).wait_until_usable(pairs=0)
    gateway.wait_for(**{'ready_workers{role="prefill"}': 1})
    response = gateway.complete()
    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"
    error = response.json()["error"]
    assert error["code"] == "no_usable_pair"
    assert error["message"].endswith("1 prefill and 0 decode instances are ready, at least 1 of each is needed")
    assert gateway.get("/v1/models").json() == {"object": "list", "data": []}
    assert gateway.get("/v1/models/test-model").status_code == 503
    assert gateway.get("/readyz").status_code == 200


def test_other_weights_are_no_pair(fleet: Fleet, start_gateway: StartGateway, tiny_llama: Path, tmp_path: Path) -> None:
    """B20."""
    decode = WorkerProcess("decode", tiny_llama, tmp_path, dtype="BF16", max_model_length=64, kv_cache_memory="1Mi")
    try:
        gateway = start_gateway(fleet.prefills[0], decode).wait_until_usable(pairs=0)
        gateway.wait_for(**{'ready_workers{role="prefill"}': 1, 'ready_workers{role="decode"}': 1})
        response = gateway.complete()
    finally:
        decode.kill()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_usable_pair")
    assert "hold the same weights" in response.json()["error"]["message"]


def test_a_restarted_worker_is_found_again(fleet: Fleet, start_gateway: StartGateway) -> None:
    """B8: at the same address with a new incarnation; nothing else restarts."""
    decode = fleet.decodes[0]
    gateway = start_gateway(fleet.prefills[0], decode).wait_until_usable()
    before = gateway.complete().json()["choices"]
    decode.kill()
    gateway.wait_for(usable_pairs=0)
    fleet.restart(decode)
    gateway.wait_for(usable_pairs=1)
    assert gateway.complete().json()["choices"] == before
    assert "restarted" in gateway.log.read_text()


async def test_a_worker_that_hangs_is_left_for_another(fleet: Fleet, start_gateway: StartGateway) -> None:
    """B3 and B13: a stopped process neither answers nor closes its stream; keepalives notice it."""
    gateway = start_gateway(*fleet.prefills, fleet.decodes[0]).wait_until_usable(pairs=2)
    hanging = fleet.prefills[0].process
    hanging.send_signal(signal.SIGSTOP)
    try:
        streams = await _run(gateway, *[SAMPLED | {"seed": seed, "max_tokens": 8} for seed in range(4)])
    finally:
        hanging.send_signal(signal.SIGCONT)
    assert all(stream.ended_well for stream in streams)


def test_a_draining_worker_gets_no_new_requests(fleet: Fleet, start_gateway: StartGateway) -> None:
    """B18 and B27."""
    gateway = start_gateway(fleet.prefills[0], *fleet.decodes).wait_until_usable(pairs=2)
    body = SAMPLED | {"max_tokens": 3000}
    with httpx.stream("POST", f"{gateway.url}/v1/completions", json=body, timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        leaving = fleet.busy_decode()
        leaving.process.send_signal(signal.SIGTERM)
        gateway.wait_for(usable_pairs=1)
        workers = {gateway.complete().json()["distserve"]["decode_worker"] for _ in range(4)}
        assert "data: [DONE]" in list(lines)
    assert leaving.grpc not in workers
    assert leaving.exit_status() == 0


def test_equal_workers_get_equal_work(fleet: Fleet, start_gateway: StartGateway) -> None:
    """B23."""
    gateway = start_gateway(*fleet.prefills, *fleet.decodes).wait_until_usable(pairs=4)
    reports = [gateway.complete().json()["distserve"] for _ in range(20)]
    for role in ("prefill_worker", "decode_worker"):
        chosen = [report[role] for report in reports]
        assert {chosen.count(worker) for worker in chosen} == {10}
