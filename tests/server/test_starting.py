"""A worker that cannot start says why where Kubernetes looks; one that loads answers its probes meanwhile."""

import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import torch
from distserve_testing.hubs import REPOSITORY, Hub, played_hub
from distserve_testing.processes import POLL_SECONDS, START_SECONDS
from distserve_testing.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def start_worker(start_worker: StartWorker) -> StartWorker:
    """As an operator starts them: they read torch themselves."""
    return partial(start_worker, forked=False)


def reason(worker: WorkerProcess) -> str:
    assert worker.exit_status() == 1
    return worker.termination_log.read_text()


def test_a_model_path_that_is_not_there_is_named(start_worker: StartWorker) -> None:
    assert reason(start_worker("prefill", "file:///no/such/model")).startswith("ModelNotFound: file:///no/such/model")


@pytest.mark.parametrize("path", ["/" + "x" * 300, "/proc/self/mem"], ids=["too long", "unreadable"])
def test_a_model_that_cannot_be_read_is_named(start_worker: StartWorker, path: str) -> None:
    assert reason(start_worker("prefill", path)).startswith(f"ModelNotFound: {path}: [Errno ")


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


def test_a_wrong_flag_is_named_where_all_reasons_are_left(start_worker: StartWorker) -> None:
    text = reason(start_worker("decode", max_waiting=-1))
    assert text.startswith("ConfigurationInvalid: argument --max-waiting: ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_told_before_anything_is_read(start_worker: StartWorker) -> None:
    text = reason(start_worker("prefill", "file:///no/such/model", device="cuda", tp=2))
    assert text.startswith("ConfigurationInvalid: device is cuda, and torch can use none here (")
    assert text.endswith("): give the process a GPU, or take cpu")


@pytest.mark.parametrize("name", ["grpc_port", "http_port"])
def test_a_port_that_is_taken_is_named_by_its_flag(start_worker: StartWorker, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = reason(start_worker("prefill", **{name: taken.getsockname()[1]}))
    assert text.startswith(f"ConfigurationInvalid: --{name.replace('_', '-')}: cannot listen on 127.0.0.1")


@pytest.fixture
def hub(wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Workers that load from it wait until it is opened."""
    with played_hub(wide_llama) as hub:
        for name, value in hub.environment(tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        yield hub


def test_probes_are_answered_while_the_model_loads(start_worker: StartWorker, hub: Hub) -> None:
    """B15: alive at once, routable only when requests are really served."""
    worker = start_worker("prefill", REPOSITORY)
    assert worker.probe("/healthz").status_code == httpx.codes.OK
    ready = worker.probe("/readyz")
    assert ready.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert ready.text.startswith(f"loading {REPOSITORY} ")
    hub.open.set()
    until = time.monotonic() + START_SECONDS
    while worker.probe("/readyz").status_code != httpx.codes.OK:
        assert time.monotonic() < until, worker.log.read_text()
        assert worker.probe("/healthz").status_code == httpx.codes.OK
        time.sleep(POLL_SECONDS)
    assert worker.http == worker.first_port


def test_a_worker_that_loads_ends_on_sigterm(start_worker: StartWorker, hub: Hub) -> None:
    worker = start_worker("prefill", REPOSITORY)
    assert worker.probe("/healthz").status_code == httpx.codes.OK
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exit_status() == 0
    assert not hub.open.is_set()
