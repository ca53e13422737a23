"""An engine that fails takes the process with it, after every request has been told; a request that fails does not."""

import math
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil
import pytest
from distserve_testing.gateways import Gateway, Leg
from distserve_testing.workers import WorkerProcess
from safetensors.torch import load_file, save_file

StartWorker = Callable[..., WorkerProcess]

MEBIBYTE: Final = 1 << 20


def _give_no_more_memory(worker: WorkerProcess, less: int = 0) -> None:
    """Its address space does not grow beyond what it has now, `less` this many bytes."""
    _limit_memory(worker, psutil.Process(worker.process.pid).memory_info().vms - less)


def _limit_memory(worker: WorkerProcess, count: int) -> None:
    psutil.Process(worker.process.pid).rlimit(resource.RLIMIT_AS, (count, resource.RLIM_INFINITY))


async def _decoded(gateway: Gateway, decode: WorkerProcess, first: Leg) -> Leg:
    stream = gateway.attach(decode.grpc)
    rest = await stream.submit([3, 4], first.tokens, kv=first.handle, max_tokens=2)
    await stream.until_over(rest)
    return rest


async def test_a_step_that_fails_ends_the_process_with_its_reason(start_worker: StartWorker, gateway: Gateway) -> None:
    """B3: the parked request and the one that runs get their failure; the engine is not trusted any more."""
    prefill = start_worker("prefill", max_batch_tokens=2048, forked=False)
    stream = gateway.attach(prefill.grpc)
    parked = await stream.submit([3, 4])
    await stream.until_over(parked)
    _give_no_more_memory(prefill)
    doomed = await stream.submit([5] * 2047)
    await stream.until_over(doomed)
    await stream.until(lambda: stream.ended is not None)
    assert doomed.failure == "INTERNAL"
    assert parked.failure == "INTERNAL"
    assert prefill.exit_status() == 1
    assert prefill.termination_log.read_text().startswith("EngineFailed: ")


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
async def test_a_failed_engine_ends_without_memory_for_a_thread(
    start_worker: StartWorker, gateway: Gateway, *, read: bool
) -> None:
    """`Thread.start` may wait for ever where there is none, and a reader of KV makes the worker use threads."""
    prefill = start_worker("prefill", max_batch_tokens=2048, forked=False)
    prefills = gateway.attach(prefill.grpc)
    first = await prefills.submit([3, 4])
    await prefills.until_over(first)
    if read:
        rest = await _decoded(gateway, start_worker("decode"), first)
        assert rest.finished, rest
    _give_no_more_memory(prefill, less=64 * MEBIBYTE)
    doomed = await prefills.submit([5] * 2047)
    await prefills.until_over(doomed)
    assert doomed.failure == "INTERNAL"
    assert prefill.exit_status() == 1
    assert prefill.termination_log.read_text().startswith("EngineFailed: ")


async def test_a_pull_without_memory_for_threads_leaves_nothing_pinned(
    start_worker: StartWorker, gateway: Gateway
) -> None:
    """Whether it succeeds or fails."""
    prefill = start_worker("prefill", lease_seconds=2, forked=False)
    prefills = gateway.attach(prefill.grpc)
    first = await prefills.submit([3, 4])
    await prefills.until_over(first)
    decode = start_worker("decode")
    assert decode.grpc  # it has started
    _give_no_more_memory(prefill, less=64 * MEBIBYTE)
    rest = await _decoded(gateway, decode, first)
    assert rest.finished or rest.failure.startswith("KV_"), rest
    _limit_memory(prefill, resource.RLIM_INFINITY)
    prefill.wait_until_empty()


async def test_a_request_without_finite_numbers_fails_with_its_reason_and_alone(
    start_worker: StartWorker, gateway: Gateway, wide_llama: Path, tmp_path: Path
) -> None:
    """The batch goes on, and the failure says that another worker cannot help."""
    ill_model = tmp_path / "ill"
    shutil.copytree(wide_llama, ill_model)
    weights = load_file(ill_model / "model.safetensors")
    weights["model.embed_tokens.weight"][200] = math.nan
    save_file(weights, ill_model / "model.safetensors")
    worker = start_worker("colocated", ill_model)
    stream = gateway.attach(worker.grpc)
    requests = [await stream.submit(prompt, max_tokens=12) for prompt in ([3, 4], [3, 200], [5, 6, 7])]
    for request in requests:
        await stream.until_over(request)
    well, ill, fine = requests
    assert (ill.failure, ill.tokens) == ("NOT_FINITE", [])
    assert ill.failed is not None
    assert "the model's logits are not finite" in ill.failed.message
    assert all(request.finished and len(request.tokens) == 12 for request in (well, fine)), (well, fine)
    worker.wait_until_empty()
