"""Workers as an operator starts them on `hf://`: one folder for all downloads, and the token in their environment."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from distserve_testing.hubs import REPOSITORY, Hub, played_hub
from distserve_testing.processes import POLL_SECONDS, START_SECONDS
from distserve_testing.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def start_worker(start_worker: StartWorker) -> StartWorker:
    return partial(start_worker, model=f"{REPOSITORY}@v1", forked=False)


@pytest.fixture
def hub(wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with played_hub(wide_llama) as hub:
        hub.open.set()
        hub.token = "hf_right"
        for name, value in hub.environment(tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        yield hub


def _until_ready_says(worker: WorkerProcess, words: str) -> None:
    until = time.monotonic() + START_SECONDS
    while words not in (answer := worker.probe("/readyz").text):
        assert time.monotonic() < until, f"{answer}\n{worker.log.read_text()}"
        time.sleep(POLL_SECONDS)


def test_workers_that_start_at_once_share_one_download_and_later_ones_need_no_hub(
    start_worker: StartWorker, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.storage.open.clear()
    pair = start_worker("prefill"), start_worker("decode")
    assert hub.storage.halfway.wait(START_SECONDS)
    until = time.monotonic() + START_SECONDS
    while hub.asked.count("model.safetensors") < len(pair):  # the other one waits for the same file
        assert time.monotonic() < until, [worker.log.read_text() for worker in pair]
        time.sleep(POLL_SECONDS)
    hub.storage.open.set()
    for worker in pair:
        assert worker.get("/readyz").text == "ready\n"
    assert hub.storage.begun == {"model.safetensors": 1}
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert start_worker("colocated").get("/readyz").text == "ready\n"


def test_the_probe_and_the_log_say_how_much_is_downloaded(start_worker: StartWorker, hub: Hub) -> None:
    hub.storage.open.clear()
    worker = start_worker("colocated")
    _until_ready_says(worker, " MB downloaded")
    hub.storage.open.set()
    assert worker.get("/readyz").text == "ready\n"
    assert f"downloading {REPOSITORY}@v1: " in worker.log.read_text()


def test_a_worker_says_what_the_token_lacks_where_kubernetes_looks(
    start_worker: StartWorker, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    worker = start_worker("prefill")
    assert worker.exit_status() == 1
    reason = worker.termination_log.read_text()
    assert reason.startswith(f"ModelNotFound: {REPOSITORY}@v1: the hub does not take the access token (401: ")
    assert "spec.model.hub.tokenSecret" in reason
    assert not hub.storage.begun
