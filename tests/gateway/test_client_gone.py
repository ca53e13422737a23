"""B5: a client that leaves, whenever it does, frees everything on both sides."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.workers import WorkerProcess

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
def test_while_decode_runs(gateway: GatewayProcess, pair: tuple[WorkerProcess, WorkerProcess], stream: bool) -> None:
    """B5 and B2."""
    with _request(gateway, stream=stream):
        pair[1].wait_for(requests_running=1)
    for worker in pair:
        worker.wait_until_empty()
    gateway.wait_for(requests_in_flight=0)


def test_while_the_kv_is_parked(
    start_worker: Callable[..., WorkerProcess], start_gateway: Callable[..., GatewayProcess]
) -> None:
    """B5: the first request fills the decode worker (384 bytes a token), the second one waits with its KV parked."""
    small = {"max_model_length": 2048, "kv_cache_memory": "1Mi"}
    prefill, decode = start_worker("prefill", **small), start_worker("decode", **small)
    gateway = start_gateway(prefill, decode).wait_until_usable()
    with _request(gateway, max_tokens=2000):
        decode.wait_for(requests_running=1)
        with _request(gateway, max_tokens=2000):
            prefill.wait_for(requests_parked=1)
        prefill.wait_for(requests_parked=0, kv_blocks_held=0)
        decode.wait_for(requests_waiting=0, requests_running=1)
    decode.wait_until_empty()


def test_while_prefill_is_queued(
    start_worker: Callable[..., WorkerProcess], start_gateway: Callable[..., GatewayProcess]
) -> None:
    """B5: a prefill worker with room for one prompt makes the second one wait."""
    small = {"max_model_length": 1024, "kv_cache_memory": "480Ki"}
    prefill, decode = start_worker("prefill", **small), start_worker("decode", **small)
    gateway = start_gateway(prefill, decode).wait_until_usable()
    long = {"prompt": [5] * 700, "max_tokens": 300}
    with _request(gateway, **long):
        decode.wait_for(requests_running=1)
        with _request(gateway, **long):
            prefill.wait_for(requests_parked=1)
            with _request(gateway, **long):
                prefill.wait_for(requests_parked=1, requests_waiting=1)
            prefill.wait_for(requests_parked=1, requests_waiting=0)
    for worker in (prefill, decode):
        worker.wait_until_empty()
