"""Clients that send slowly, send too much, or stop reading."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.workers import Pair

PATIENCE = {"header-timeout": 0.5, "body-timeout": 0.5, "write-timeout": 0.5, "send-buffer-bytes": 2048}
MEBIBYTE = 2**20
WAIT_SECONDS = 60


@pytest.fixture
def impatient(start_gateway: Callable[..., GatewayProcess], pair: Pair) -> GatewayProcess:
    """A gateway that waits half a second for its clients."""
    gateway: GatewayProcess = start_gateway(*pair, **PATIENCE)
    return gateway.wait_until_usable()


@contextmanager
def _connection(gateway: GatewayProcess, receive_buffer_bytes: int = 65536) -> Iterator[socket.socket]:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        client.settimeout(WAIT_SECONDS)
        client.connect(gateway.host_and_port)
        yield client


def _request(body: bytes, *headers: str) -> bytes:
    head = "\r\n".join(["POST /v1/completions HTTP/1.1", "host: x", "content-type: application/json", *headers])
    return head.encode() + b"\r\n\r\n" + body


def _completion(**fields: Any) -> bytes:
    body = json.dumps({"model": "test-model", "prompt": "hello", **fields}).encode()
    return _request(body, f"content-length: {len(body)}")


def _until_closed(client: socket.socket) -> bytes:
    received = b""
    try:
        while data := client.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def _response(client: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and body of one JSON response."""
    received = b""
    while b"\r\n\r\n" not in received or not received.endswith(b"}"):
        data = client.recv(65536)
        assert data, received
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_head_that_does_not_end_is_cut(impatient: GatewayProcess) -> None:
    with _connection(impatient) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n")
        assert _until_closed(client) == b""


def test_a_client_that_says_nothing_is_cut(impatient: GatewayProcess) -> None:
    with _connection(impatient) as client:
        assert _until_closed(client) == b""


def test_a_second_head_that_does_not_end_is_cut_too(impatient: GatewayProcess) -> None:
    with _connection(impatient) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /heal")
        assert _until_closed(client).endswith(b"ok\n")


def test_a_body_that_does_not_end_is_refused(impatient: GatewayProcess) -> None:
    with _connection(impatient) as client:
        client.sendall(_request(b'{"model"', "content-length: 100"))
        status, body = _response(client)
        assert (status, body["error"]["code"]) == (408, "request_timeout")


def test_a_client_that_stops_reading_is_cut_and_its_request_cancelled(impatient: GatewayProcess, pair: Pair) -> None:
    """B5: long before its answer is complete, and the workers hold nothing for it."""
    with _connection(impatient, receive_buffer_bytes=2048) as client:
        client.sendall(_completion(max_tokens=4000, ignore_eos=True, stream=True, temperature=0))
        pair[1].wait_for(requests_running=1)
        for worker in pair:
            worker.wait_until_empty()
        impatient.wait_for(requests_in_flight=0)
        received = _until_closed(client)
    assert received.startswith(b"HTTP/1.1 200")
    assert b"[DONE]" not in received
    assert impatient.metrics()['request_total{code="499",endpoint="completions"}'] == 1


def test_a_client_that_reads_slowly_but_steadily_gets_everything(impatient: GatewayProcess) -> None:
    with _connection(impatient, receive_buffer_bytes=2048) as client:
        client.sendall(_completion(max_tokens=300, ignore_eos=True, stream=True, temperature=0))
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            data = client.recv(1024)
            assert data, received[-200:]
            received += data
            time.sleep(0.002)  # not for anything to happen: it is the slowness under test
    assert b"[DONE]" in received


def test_an_announced_body_over_the_limit_is_refused_before_it_is_sent(gateway: GatewayProcess) -> None:
    with _connection(gateway) as client:
        client.sendall(_request(b"", "content-length: 100000000"))
        status, body = _response(client)
        assert (status, body["error"]["code"]) == (413, "body_too_large")
        assert body["error"]["message"] == "The body is larger than 4194304 bytes"


@pytest.mark.parametrize("announced", [True, False], ids=["with a length", "in chunks"])
def test_a_body_of_100_megabytes_is_refused_and_never_held(gateway: GatewayProcess, announced: bool) -> None:
    process = psutil.Process(gateway.process.pid)
    before = process.memory_info().rss
    block, count = b" " * MEBIBYTE, 100
    with _connection(gateway) as client:
        if announced:
            client.sendall(_request(b"", f"content-length: {count * MEBIBYTE}"))
            for _ in range(count):
                client.sendall(block)
        else:
            client.sendall(_request(b"", "transfer-encoding: chunked"))
            for _ in range(count):
                client.sendall(f"{MEBIBYTE:x}\r\n".encode() + block + b"\r\n")
            client.sendall(b"0\r\n\r\n")
        status, body = _response(client)
    assert (status, body["error"]["code"]) == (413, "body_too_large")
    assert process.memory_info().rss - before < 40 * MEBIBYTE
    assert gateway.complete().status_code == 200


def test_what_is_not_http_gets_an_error_like_any_other(gateway: GatewayProcess) -> None:
    with _connection(gateway) as client:
        client.sendall(b"NONSENSE\r\n\r\n")
        status, body = _response(client)
        assert (status, body["error"]["code"]) == (400, "invalid_http")


def test_a_head_that_is_too_large_is_refused(gateway: GatewayProcess) -> None:
    with _connection(gateway) as client:
        client.sendall(_request(b"", "x-large: " + "a" * 200_000))
        assert _response(client)[0] == 400
