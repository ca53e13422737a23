"""Workers that die, hang, restart or are not there."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.streaming import Stream, start_streams
from distserve_testing.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]
StartGateway = Callable[..., GatewayProcess]
GREEDY = {"model": "test-model", "prompt": "hello", "max_tokens": 600, "ignore_eos": True, "stream": True}
SAMPLED = GREEDY | {"temperature": 1.2, "top_p": 0.95, "seed": 4}


def _busy(workers: list[WorkerProcess]) -> WorkerProcess:
    """The worker that runs a request."""
    [worker] = [worker for worker in workers if worker.metrics()["requests_running"]]
    return worker


async def _run(gateway: GatewayProcess, *bodies: dict[str, Any]) -> list[Stream]:
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        return list(await asyncio.gather(*(Stream(body).run(client) for body in bodies)))


@pytest.mark.parametrize("body", [GREEDY | {"temperature": 0}, SAMPLED], ids=["greedy", "sampled"])
async def test_a_request_moves_from_a_dead_decode_worker_without_losing_or_repeating_a_token(
    start_worker: StartWorker, start_gateway: StartGateway, body: dict[str, Any]
) -> None:
    """B13: the text is that of an undisturbed run, sampled tokens included."""
    prefill, decodes = start_worker("prefill"), [start_worker("decode") for _ in range(2)]
    gateway = start_gateway(prefill, *decodes).wait_until_usable(pairs=2)
    [undisturbed] = await _run(gateway, body)
    assert undisturbed.ended_well
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        [moving] = await start_streams(client, [body])
        _busy(decodes).kill()
        moved = await moving
    assert moved.ended_well
    assert moved.text == undisturbed.text
    assert gateway.metrics()['retries_total{reason="stream_lost"}'] == 1


async def test_without_another_pair_every_stream_ends_with_a_typed_error(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """B3: an SSE error object after the first byte, and the surviving side frees what it held."""
    prefill, decode = start_worker("prefill"), start_worker("decode")
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
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    prefill, decode = start_worker("prefill"), start_worker("decode")
    gateway = start_gateway(prefill, decode).wait_until_usable()
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        [running] = await start_streams(client, [SAMPLED])
        decode.wait_for(requests_running=1)
        prefill.kill()
        assert (await running).ended_well


def test_without_a_usable_pair_the_answer_is_503_with_a_reason(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """B1 and B17: nothing is served on one side only, nothing is listed."""
    gateway = start_gateway(start_worker("prefill")).wait_until_usable(pairs=0)
    response = gateway.complete()
    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"
    error = response.json()["error"]
    assert error["code"] == "no_usable_pair"
    assert error["message"].endswith("0 decode instances are ready, at least 1 of each is needed")
    assert gateway.get("/v1/models").json() == {"object": "list", "data": []}
    assert gateway.get("/v1/models/test-model").status_code == 503
    assert gateway.get("/readyz").status_code == 200


def test_other_weights_are_no_pair(start_worker: StartWorker, start_gateway: StartGateway) -> None:
    """B20."""
    prefill, decode = start_worker("prefill"), start_worker("decode", dtype="BF16")
    gateway = start_gateway(prefill, decode).wait_until_usable(pairs=0)
    gateway.wait_for(**{'ready_workers{role="prefill"}': 1, 'ready_workers{role="decode"}': 1})
    response = gateway.complete()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_usable_pair")
    assert "hold the same weights" in response.json()["error"]["message"]


def test_a_restarted_worker_is_found_again(start_worker: StartWorker, start_gateway: StartGateway) -> None:
    """B8: at the same address with a new incarnation; nothing else restarts."""
    prefill, decode = start_worker("prefill"), start_worker("decode")
    gateway = start_gateway(prefill, decode).wait_until_usable()
    before = gateway.complete().json()["choices"]
    decode.kill()
    gateway.wait_for(usable_pairs=0)
    start_worker("decode", grpc_port=decode.port("grpc"))
    gateway.wait_for(usable_pairs=1)
    assert gateway.complete().json()["choices"] == before
    assert "restarted" in gateway.log.read_text()


async def test_a_worker_that_hangs_is_left_for_another(start_worker: StartWorker, start_gateway: StartGateway) -> None:
    """B3 and B13: a stopped process neither answers nor closes its stream; keepalives notice it."""
    prefills, decode = [start_worker("prefill") for _ in range(2)], start_worker("decode")
    gateway = start_gateway(*prefills, decode).wait_until_usable(pairs=2)
    os.kill(prefills[0].process.pid, signal.SIGSTOP)
    streams = await _run(gateway, *[SAMPLED | {"seed": seed, "max_tokens": 8} for seed in range(4)])
    assert all(stream.ended_well for stream in streams)


def test_a_draining_worker_gets_no_new_requests(start_worker: StartWorker, start_gateway: StartGateway) -> None:
    """B18 and B27."""
    prefill, decodes = start_worker("prefill"), [start_worker("decode") for _ in range(2)]
    gateway = start_gateway(prefill, *decodes).wait_until_usable(pairs=2)
    with httpx.stream("POST", f"{gateway.url}/v1/completions", json=SAMPLED, timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        leaving = _busy(decodes)
        leaving.process.send_signal(signal.SIGTERM)
        gateway.wait_for(usable_pairs=1)
        workers = {gateway.complete().json()["distserve"]["decode_worker"] for _ in range(4)}
        assert "data: [DONE]" in list(lines)
    assert leaving.grpc not in workers
    assert leaving.exit_status() == 0


def test_equal_workers_get_equal_work(start_worker: StartWorker, start_gateway: StartGateway) -> None:
    """B23."""
    prefills, decodes = [start_worker("prefill") for _ in range(2)], [start_worker("decode") for _ in range(2)]
    gateway = start_gateway(*prefills, *decodes).wait_until_usable(pairs=4)
    reports = [gateway.complete().json()["distserve"] for _ in range(20)]
    for role in ("prefill_worker", "decode_worker"):
        chosen = [report[role] for report in reports]
        assert {chosen.count(worker) for worker in chosen} == {10}
