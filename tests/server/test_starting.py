"""A worker that cannot start says why where Kubernetes looks; one that loads answers its probes meanwhile."""

import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from distserve_testing.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def reason(worker: WorkerProcess) -> str:
    assert worker.exit_status() == 1
    return worker.termination_log.read_text()


def test_a_model_path_that_is_not_there_is_named(start_worker: StartWorker) -> None:
    assert reason(start_worker("prefill", "file:///no/such/model")).startswith("ModelNotFound: file:///no/such/model")


def test_a_file_that_is_no_model_is_named(start_worker: StartWorker, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and then nothing")
    text = reason(start_worker("prefill", broken))
    assert text.startswith("ModelInvalid: ")
    assert "broken.gguf" in text


def test_a_kv_memory_that_is_too_small_is_told_in_numbers(start_worker: StartWorker) -> None:
    """B35 on the worker's side."""
    text = reason(start_worker("decode", kv_cache_memory="1Mi"))
    assert text.startswith("ModelDoesNotFit: ")
    assert "1048576" in text


def test_a_length_that_the_model_does_not_have_is_named(start_worker: StartWorker) -> None:
    """A wrong value of the user's, not a failed engine: a restart would not help."""
    text = reason(start_worker("decode", max_model_length=5000))
    assert text.startswith("ConfigurationInvalid: max_model_length is 5000, the model has 4096 positions")


@pytest.mark.parametrize("name", ["grpc_port", "http_port"])
def test_a_port_that_is_taken_is_named_by_its_flag(start_worker: StartWorker, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = reason(start_worker("prefill", **{name: taken.getsockname()[1]}))
    assert text.startswith(f"ConfigurationInvalid: --{name.replace('_', '-')}: cannot listen on 127.0.0.1")


def test_probes_are_answered_while_the_model_loads(start_worker: StartWorker) -> None:
    """B15: alive at once, routable only when requests are really served."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    worker = start_worker("prefill", http_port=port)
    url = f"http://127.0.0.1:{port}"
    seen: list[tuple[int, int, str]] = []
    until = time.monotonic() + 60
    while not seen or seen[-1][1] != httpx.codes.OK:
        assert time.monotonic() < until, seen
        try:
            alive, ready = httpx.get(f"{url}/healthz"), httpx.get(f"{url}/readyz")
        except httpx.ConnectError:
            time.sleep(0.02)
            continue
        seen.append((alive.status_code, ready.status_code, ready.text))
    assert {alive for alive, _, _ in seen} == {httpx.codes.OK}
    assert seen[0][1] == httpx.codes.SERVICE_UNAVAILABLE
    assert seen[0][2].startswith("loading ")
    assert worker.port("http") == port


def test_a_worker_that_loads_ends_on_sigterm(start_worker: StartWorker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    worker = start_worker("prefill", http_port=port)
    until = time.monotonic() + 60
    while True:
        assert time.monotonic() < until
        try:
            httpx.get(f"http://127.0.0.1:{port}/healthz")
            break
        except httpx.ConnectError:
            time.sleep(0.02)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exit_status() == 0
