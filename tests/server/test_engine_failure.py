"""An engine that fails takes the process with it, after every request has been told."""

import resource
from collections.abc import Callable

import psutil
from distserve_testing.gateways import Gateway
from distserve_testing.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


async def test_a_step_that_fails_ends_the_process_with_its_reason(start_worker: StartWorker, gateway: Gateway) -> None:
    """B3: the parked request and the one that runs get their failure; the engine is not trusted any more."""
    prefill = start_worker("prefill", max_batch_tokens=2048, forked=False)
    stream = gateway.attach(prefill.grpc)
    parked = await stream.submit([3, 4])
    await stream.until_over(parked)
    process = psutil.Process(prefill.process.pid)
    process.rlimit(resource.RLIMIT_AS, (process.memory_info().vms, resource.RLIM_INFINITY))
    doomed = await stream.submit([5] * 2047)
    await stream.until_over(doomed)
    await stream.until(lambda: stream.ended is not None)
    assert doomed.failure == "INTERNAL"
    assert parked.failure == "INTERNAL"
    assert prefill.exit_status() == 1
    assert prefill.termination_log.read_text().startswith("EngineFailed: ")
