"""More requests than the queues hold, and fleets that are too slow."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import httpx
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.streaming import Stream, start_streams
from distserve_testing.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]
StartGateway = Callable[..., GatewayProcess]
BODY: dict[str, Any] = {
    "model": "test-model",
    "prompt": "hello",
    "max_tokens": 1500,
    "ignore_eos": True,
    "stream": True,
}


async def test_the_gateway_takes_no_more_requests_than_it_has_places(
    start_gateway: StartGateway, pair: tuple[WorkerProcess, WorkerProcess]
) -> None:
    gateway = start_gateway(*pair, max_requests=2).wait_until_usable()
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        running = await start_streams(client, [BODY] * 2)
        for path in ("/v1/completions", "/v1/chat/completions"):
            refused = gateway.post(path, {})
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "queue_full"
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    gateway.wait_for(requests_in_flight=0)
    assert gateway.complete().status_code == 200


async def test_full_queues_of_all_workers_are_told_to_the_client(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """One prompt is parked until the one decode place is free, so others wait at the prefill worker or are refused."""
    small = {"max_model_length": 2048, "kv_cache_memory": "1Mi"}
    prefill, decode = start_worker("prefill", **small, max_waiting=1), start_worker("decode", **small)
    gateway = start_gateway(prefill, decode).wait_until_usable()
    long = BODY | {"prompt": [5] * 1500, "max_tokens": 500, "stream": False}
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        answers = await asyncio.gather(*(client.post("/v1/completions", json=long) for _ in range(8)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 429}
    for answer in answers:
        if answer.status_code == 429:
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["error"]["code"] == "queue_full"
    for worker in (prefill, decode):
        worker.wait_until_empty()


async def test_a_full_queue_of_one_worker_is_left_for_another(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """No request is refused while any instance has room."""
    small = {"max_model_length": 2048, "kv_cache_memory": "1Mi"}
    prefills = [start_worker("prefill", **small, max_waiting=waiting) for waiting in (1, 64)]
    decode = start_worker("decode")
    gateway = start_gateway(*prefills, decode).wait_until_usable(pairs=2)
    long = BODY | {"prompt": [5] * 1500, "max_tokens": 4}
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        streams = await asyncio.gather(*(Stream(long).run(client) for _ in range(12)))
    assert all(stream.ended_well for stream in streams)


def test_a_fleet_that_does_not_answer_in_time_is_a_504(start_worker: StartWorker, start_gateway: StartGateway) -> None:
    """B15: the deadline grows with the prompt; here it is cut down to be seen."""
    prefill, decode = start_worker("prefill"), start_worker("decode")
    flags = {"deadline-base-seconds": 0.5, "deadline-milliseconds-per-token": 0}
    gateway = start_gateway(prefill, decode, **flags).wait_until_usable()
    os.kill(prefill.process.pid, signal.SIGSTOP)
    response = gateway.complete()
    os.kill(prefill.process.pid, signal.SIGCONT)
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "deadline_exceeded"
    prefill.wait_until_empty()
