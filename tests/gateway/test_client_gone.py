"""B5: a client that leaves, whenever it does, frees everything on both sides."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.workers import Pair

BODY = {"model": "test-model", "prompt": "hello", "max_tokens": 3000, "ignore_eos": True, "temperature": 0}


@contextmanager
def _request(gateway: GatewayProcess, **fields: Any) -> Iterator[socket.socket]:
    """A request whose client leaves at the end of the block."""
    body = json.dumps(BODY | fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(gateway.host_and_port, timeout=60) as client:
        client.sendall(head.encode() + body)
        yield client


@pytest.mark.parametrize("stream", [True, False])
def test_while_decode_runs(gateway: GatewayProcess, pair: Pair, stream: bool) -> None:
    """B5 and B2."""
    with _request(gateway, stream=stream):
        pair[1].wait_for(requests_running=1)
    for worker in pair:
        worker.wait_until_empty()
    gateway.wait_for(requests_in_flight=0)


def test_while_the_kv_is_parked(start_gateway: Callable[..., GatewayProcess], cramped_pair: Pair) -> None:
    """B5: the first request fills the decode worker, the second one waits for room with its KV parked."""
    prefill, decode = cramped_pair
    gateway = start_gateway(prefill, decode).wait_until_usable()
    with _request(gateway, max_tokens=2000):
        decode.wait_for(requests_running=1)
        with _request(gateway, max_tokens=2000):
            prefill.wait_for(requests_parked=1)
        prefill.wait_for(requests_parked=0, kv_blocks_held=0)
        decode.wait_for(requests_waiting=0, requests_running=1)


def test_while_prefill_is_queued(start_gateway: Callable[..., GatewayProcess], cramped_pair: Pair) -> None:
    """B5: one long prompt is parked until decode has room for it, so the next one waits for memory."""
    prefill, decode = cramped_pair
    gateway = start_gateway(prefill, decode).wait_until_usable()
    long = {"prompt": [5] * 1500, "max_tokens": 500}
    with _request(gateway, max_tokens=2000):
        decode.wait_for(requests_running=1)
        with _request(gateway, **long):
            prefill.wait_for(requests_parked=1)
            with _request(gateway, **long):
                prefill.wait_for(requests_parked=1, requests_waiting=1)
            prefill.wait_for(requests_parked=1, requests_waiting=0)
