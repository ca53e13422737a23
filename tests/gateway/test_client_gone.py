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

LEFT = 'request_total{code="499",endpoint="completions"}'
NEXT = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


@contextmanager
def _request(gateway: GatewayProcess, headers: str = "", ahead: bytes = b"", **fields: Any) -> Iterator[socket.socket]:
    """A request whose client leaves at the end of the block; `ahead` is sent in one go with it."""
    body = json.dumps(BODY | fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\n{headers}content-length: {len(body)}\r\n\r\n"
    with socket.create_connection(gateway.host_and_port, timeout=60) as client:
        client.sendall(head.encode() + body + ahead)
        yield client


def _left(gateway: GatewayProcess) -> float:
    """Requests whose clients have left before their answer was complete."""
    return gateway.metrics().get(LEFT, 0)


@pytest.mark.parametrize("stream", [True, False])
def test_while_decode_runs(gateway: GatewayProcess, pair: Pair, stream: bool) -> None:
    """B5 and B2."""
    with _request(gateway, stream=stream):
        pair[1].wait_for(requests_running=1)
    for worker in pair:
        worker.wait_until_empty()
    gateway.wait_for(requests_in_flight=0)


@pytest.mark.parametrize(
    ("headers", "ahead", "later"),
    [
        ("", NEXT, b""),
        ("", b"", NEXT),
        ("", b"\r\n", b"\r\n"),
        ("", NEXT * 100, NEXT * 1000),
        ("connection: close\r\n", NEXT, NEXT),
        ("connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n", b"", b""),
    ],
)
def test_after_more_than_its_request(
    gateway: GatewayProcess, pair: Pair, headers: str, ahead: bytes, later: bytes
) -> None:
    """B5: what a client has sent ahead does not hide that it has left."""
    before = _left(gateway)
    with _request(gateway, headers, ahead) as client:
        pair.decode.wait_for(requests_running=1)
        client.sendall(later)
    gateway.wait_for(**{LEFT: before + 1, "requests_in_flight": 0})


def test_a_client_that_sends_far_ahead_is_cut(gateway: GatewayProcess, pair: Pair) -> None:
    """B5: what it is allowed to send is not held without bound."""
    before = _left(gateway)
    with _request(gateway) as client:
        pair.decode.wait_for(requests_running=1)
        client.sendall(NEXT * 2000)
        gateway.wait_for(**{LEFT: before + 1, "requests_in_flight": 0})


def test_what_was_sent_ahead_is_answered_after_its_request(gateway: GatewayProcess) -> None:
    with _request(gateway, ahead=NEXT * 2, max_tokens=3) as client:
        received = b""
        while received.count(b"ok\n") < 2:
            data = client.recv(65536)
            assert data, received
            received += data
    assert received.count(b"HTTP/1.1 200 OK") == 3


def test_bytes_after_the_last_request_of_a_connection_do_not_cost_its_answer(
    gateway: GatewayProcess, pair: Pair
) -> None:
    with _request(gateway, "connection: close\r\n", max_tokens=300) as client:
        pair.decode.wait_for(requests_running=1)
        client.sendall(b"\r\n")
        received = b""
        while data := client.recv(65536):
            received += data
    assert received.startswith(b"HTTP/1.1 200 OK")


def test_while_the_kv_is_parked(start_gateway: Callable[..., GatewayProcess], cramped_pair: Pair) -> None:
    """B5: the first request fills the decode worker, the second one waits for room with its KV parked."""
    prefill, decode = cramped_pair
    gateway = start_gateway(prefill, decode).wait_until_usable()
    with _request(gateway, prompt=[7] * 1500, max_tokens=500):
        decode.wait_for(requests_running=1)
        with _request(gateway, prompt=[5] * 1500, max_tokens=500):
            prefill.wait_for(requests_parked=1)
        prefill.wait_for(requests_parked=0, kv_blocks_held=0)
        decode.wait_for(requests_waiting=0, requests_running=1)


def test_while_prefill_is_queued(start_gateway: Callable[..., GatewayProcess], cramped_pair: Pair) -> None:
    """B5: one long prompt is parked until decode has room for it, so the next one waits for memory."""
    prefill, decode = cramped_pair
    gateway = start_gateway(prefill, decode).wait_until_usable()
    with _request(gateway, prompt=[7] * 1500, max_tokens=500):
        decode.wait_for(requests_running=1)
        with _request(gateway, prompt=[5] * 1500, max_tokens=500):
            prefill.wait_for(requests_parked=1)
            with _request(gateway, prompt=[6] * 1500, max_tokens=500):
                prefill.wait_for(requests_parked=1, requests_waiting=1)
            prefill.wait_for(requests_parked=1, requests_waiting=0)
