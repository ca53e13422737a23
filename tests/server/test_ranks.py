"""An instance of several processes: it lives and dies as one."""

import asyncio
import multiprocessing
import queue
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from distserve_testing.gateways import Gateway
from distserve_testing.models import write_blank_llama, write_tiny_llama
from distserve_testing.processes import POLL_SECONDS, START_SECONDS
from distserve_testing.workers import WorkerProcess

from distserve_worker.engine.blueprint import Blueprint, EngineConfig, EngineRole, blueprint_of
from distserve_worker.engine.parallel import Grid
from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.ranks.launching import RankProcesses
from distserve_worker.server.ranks.messages import Assignment, Progress
from distserve_worker.server.ranks.process import ProgressTeller
from distserve_worker.server.ranks.watching import Listener
from distserve_worker.transfer.remote.agent import RemoteAgent

StartWorker = Callable[..., WorkerProcess]
WAIT_SECONDS = 30
LARGE: Final[dict[str, Any]] = {  # seconds to load as INT8
    "vocab_size": 3200,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}


def processes_of(worker: WorkerProcess) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """The other ranks of a running worker, and whoever else belongs to it."""
    assert worker.listening
    ranks, others = children_of(worker)
    assert ranks
    return ranks, others


def children_of(worker: WorkerProcess) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Other ranks, which are forked from a process that has read all code; and that process with its helpers."""
    children = psutil.Process(worker.process.pid).children(recursive=True)
    ranks = [child for child in children if child.ppid() != worker.process.pid]
    return ranks, [child for child in children if child not in ranks]


def loaded_megabytes(worker: WorkerProcess) -> tuple[int, int] | None:
    """What the worker's own process said last: so many of how many; None: nothing yet."""
    said = re.findall(r" distserve_worker\.\S+: loading .+: (\d+) of (\d+) MB", worker.log.read_text())
    return (int(said[-1][0]), int(said[-1][1])) if said else None


def assignment(blueprint: Blueprint) -> Assignment:
    """Of rank 1."""
    return Assignment(blueprint, 1, 1, "127.0.0.1", "127.0.0.1")


def wait_until_gone(processes: list[psutil.Process]) -> None:
    """Until none of them runs."""
    _, alive = psutil.wait_procs(processes, WAIT_SECONDS)
    assert not alive


def test_a_rank_that_dies_ends_the_instance_with_its_name(start_worker: StartWorker) -> None:
    worker = start_worker("colocated", tp=2)
    (rank,), others = processes_of(worker)
    rank.send_signal(signal.SIGKILL)
    assert worker.exit_status() == 1
    reason = worker.termination_log.read_text()
    assert reason == "EngineFailed: rank 1 (stage 0, tensor rank 1) ended by SIGKILL"
    wait_until_gone(others)


async def test_a_rank_that_dies_while_others_wait_for_it_ends_the_instance(
    device: str, start_worker: StartWorker, gateway: Gateway
) -> None:
    """B21: on a GPU that wait has no end of its own."""
    worker = start_worker("colocated", tp=2, device=device)
    stream = gateway.attach(worker.grpc)
    leg = await stream.submit([1, 2, 3], max_tokens=2000)
    await stream.until(lambda: len(leg.tokens) > 3)
    (rank,), others = processes_of(worker)
    rank.send_signal(signal.SIGKILL)
    assert await asyncio.to_thread(worker.exit_status) == 1
    reason = worker.termination_log.read_text()
    assert reason == "EngineFailed: rank 1 (stage 0, tensor rank 1) ended by SIGKILL"
    wait_until_gone(others)


def test_ranks_end_with_their_driver(start_worker: StartWorker) -> None:
    worker = start_worker("prefill", pp=2)
    ranks, others = processes_of(worker)
    worker.process.send_signal(signal.SIGKILL)
    wait_until_gone([*ranks, *others])


@pytest.mark.parametrize("role", ["colocated", "prefill", "decode"])
def test_ranks_end_after_the_driver_has_drained(start_worker: StartWorker, role: str) -> None:
    worker = start_worker(role, pp=2)
    ranks, others = processes_of(worker)
    for process in (psutil.Process(worker.process.pid), *ranks):
        process.send_signal(signal.SIGTERM)  # as a shell does it that ends a group
    assert worker.exit_status() == 0
    wait_until_gone([*ranks, *others])


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"tp": 5}, "ConfigurationInvalid: tp is 5, which does not divide the model's 12 heads"),
        ({"pp": 9}, "ConfigurationInvalid: pp is 9, the model has only 3 layers"),
    ],
)
def test_a_shape_that_the_model_cannot_have_is_told_in_numbers(
    start_worker: StartWorker, shape: dict[str, int], words: str
) -> None:
    worker = start_worker("decode", **shape)
    assert worker.exit_status() == 1
    assert worker.termination_log.read_text().startswith(words)


def test_what_is_wrong_with_the_weights_of_a_rank_is_told_by_the_instance(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    write_tiny_llama(tmp_path, max_shard_size="40KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    shards[-1].write_bytes(shards[-1].read_bytes()[:-100])
    worker = start_worker("colocated", model=tmp_path, tp=2, max_model_length=256)
    assert worker.exit_status() == 1
    assert worker.termination_log.read_text().startswith("ModelInvalid: ")


def test_a_rank_that_dies_while_the_driver_loads_ends_the_instance_at_once(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    write_blank_llama(tmp_path, **LARGE)
    worker = start_worker("colocated", model=tmp_path, tp=2, dtype="INT8", max_model_length=256)
    until = time.monotonic() + START_SECONDS
    while loaded_megabytes(worker) is None:
        assert time.monotonic() < until, worker.log.read_text()
        time.sleep(POLL_SECONDS)
    (rank,), _ = children_of(worker)
    rank.send_signal(signal.SIGKILL)
    assert worker.exit_status() == 1
    reason = worker.termination_log.read_text()
    assert reason == "EngineFailed: rank 1 (stage 0, tensor rank 1) ended by SIGKILL"
    loaded = loaded_megabytes(worker)
    assert loaded is not None
    assert loaded[0] < loaded[1]


def test_what_is_wrong_with_a_rank_is_told_while_its_driver_is_busy(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    write_tiny_llama(tmp_path)
    blueprint = blueprint_of(EngineConfig("colocated", tmp_path, 1 << 20, grid=Grid(tp=2)))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    told: queue.Queue[WorkerFailure] = queue.Queue()
    ranks = RankProcesses([assignment(blueprint)], Listener(lambda *_: None, told.put))
    request.addfinalizer(ranks.kill)
    failure = told.get(timeout=START_SECONDS)
    assert str(failure).startswith(f"ModelInvalid: rank 1 (stage 0, tensor rank 1): {weights}: ")


def test_nobody_hears_of_ranks_that_are_ended(tmp_path: Path) -> None:
    """Whoever ends them has another reason to."""
    write_tiny_llama(tmp_path)
    blueprint = blueprint_of(EngineConfig("colocated", tmp_path, 1 << 20, grid=Grid(tp=2)))
    told: list[WorkerFailure] = []
    RankProcesses([assignment(blueprint)], Listener(lambda *_: None, told.append)).kill()
    assert not told


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_rank_ends_when_its_driver_hangs_up_on_its_transports(
    role: EngineRole, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its driver does so when a transfer does not end; what is left of that may never meet blocks of others."""
    write_tiny_llama(tmp_path)
    blueprint = blueprint_of(EngineConfig(role, tmp_path, 1 << 20, grid=Grid(tp=2)))
    told: queue.Queue[WorkerFailure] = queue.Queue()
    ranks = RankProcesses([assignment(blueprint)], Listener(lambda *_: None, told.put))
    request.addfinalizer(ranks.kill)
    ranks.wait_until_loaded()
    RemoteAgent(ranks.transfers[0]).close()
    reason = told.get(timeout=WAIT_SECONDS)
    assert str(reason) == ("EngineFailed: rank 1 (stage 0, tensor rank 1): the driver has hung up on its transports")


def test_a_rank_loads_on_while_its_driver_does_not_listen() -> None:
    """The driver loads its own part meanwhile; weights are many more than messages fit into a pipe."""
    weights = 20_000
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs, ThreadPoolExecutor(1) as threads:
        tell = ProgressTeller(theirs)

        def load() -> None:
            for done in range(1, weights + 1):
                tell(done / weights)

        loading = threads.submit(load)
        try:
            loading.result(WAIT_SECONDS)
        finally:
            heard = []
            while not loading.done() or ours.poll():
                heard.append(ours.recv())
    assert heard[-1] == Progress(1.0)
    assert heard == sorted(heard, key=lambda progress: progress.share)
