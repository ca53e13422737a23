"""More requests than the queues hold, and fleets that are too slow."""

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Any

import httpx
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.streaming import Stream, start_streams
from distserve_testing.workers import Pair

StartGateway = Callable[..., GatewayProcess]

BODY: dict[str, Any] = {"model": "test-model", "prompt": "hello", "ignore_eos": True, "stream": True}
LONG = BODY | {"prompt": [5] * 1500, "max_tokens": 4, "stream": False}


async def test_the_gateway_takes_no_more_requests_than_it_has_places(start_gateway: StartGateway, pair: Pair) -> None:
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


def test_bodies_of_all_requests_together_are_bounded(start_gateway: StartGateway, pair: Pair) -> None:
    """Else clients could fill the gateway's memory without exceeding any other limit."""
    gateway = start_gateway(*pair, max_body_bytes=60_000, max_bodies_bytes=100_000).wait_until_usable()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n"
    with socket.create_connection(gateway.host_and_port, timeout=60) as slow:
        slow.sendall(head + b" " * 59_999)
        gateway.wait_for(body_bytes=59_999)
        refused = gateway.complete(prompt="a" * 50_000)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert refused.headers["retry-after"] == "1"
        assert gateway.complete(prompt="a").status_code == 200
        gateway.wait_for(body_bytes=59_999)
    gateway.wait_for(body_bytes=0, requests_in_flight=0)
    assert gateway.complete(prompt="a " * 1000).status_code == 200


async def test_a_body_counts_until_its_answer_is_complete(start_gateway: StartGateway, pair: Pair) -> None:
    gateway = start_gateway(*pair, max_body_bytes=1000, max_bodies_bytes=1000).wait_until_usable()
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        [running] = await start_streams(client, [BODY | {"metadata": "x" * 600}])
        assert gateway.complete(metadata="x" * 600).status_code == 429
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    gateway.wait_for(body_bytes=0)


async def test_full_queues_of_all_workers_are_told_to_the_client(
    start_gateway: StartGateway, cramped_pair: Pair
) -> None:
    """One long prompt is parked until decode has room, one more may wait at the prefill worker, others are refused."""
    gateway = start_gateway(*cramped_pair).wait_until_usable()
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        answers = await asyncio.gather(
            *(client.post("/v1/completions", json=LONG | {"max_tokens": 500}) for _ in range(8))
        )
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.status_code for answer in answers} == {200, 429}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert {answer.json()["error"]["code"] for answer in refused} == {"queue_full"}


async def test_a_full_queue_of_one_worker_is_left_for_another(
    start_gateway: StartGateway, cramped_pair: Pair, pair: Pair
) -> None:
    """No request is refused while any instance has room."""
    gateway = start_gateway(cramped_pair[0], *pair).wait_until_usable(pairs=2)
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        streams = await asyncio.gather(*(Stream(LONG | {"stream": True}).run(client) for _ in range(8)))
    assert all(stream.ended_well for stream in streams)


def test_a_fleet_that_does_not_answer_in_time_is_a_504(start_gateway: StartGateway, cramped_pair: Pair) -> None:
    """B15: the deadline grows with the prompt; here it is cut down to be seen."""
    flags = {"deadline-base-seconds": 0.5, "deadline-milliseconds-per-token": 0}
    gateway = start_gateway(*cramped_pair, **flags).wait_until_usable()
    prefill = cramped_pair[0].process
    prefill.send_signal(signal.SIGSTOP)
    response = gateway.complete()
    prefill.send_signal(signal.SIGCONT)
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "deadline_exceeded"
