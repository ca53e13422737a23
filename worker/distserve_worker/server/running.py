"""The life of a worker process: load, serve, drain, end."""

import asyncio
import json
import logging
import signal
import time
from collections.abc import Callable
from typing import Final

from distserve_proto import worker_pb2
from distserve_proto.addresses import format_address
from distserve_proto.contract import ExitReason
from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.arguments import WorkerConfig
from distserve_worker.server.arrivals import Ready
from distserve_worker.server.assembling import Worker
from distserve_worker.server.faults import failure_of
from distserve_worker.server.health import HealthServer
from distserve_worker.server.listeners import open_socket
from distserve_worker.server.loading import Loaded, Watcher, load
from distserve_worker.server.metrics import Metrics
from distserve_worker.server.pulse import Pulse
from distserve_worker.server.state import Stage, State
from distserve_worker.server.stepping import EngineThread
from distserve_worker.server.threads import started_threads
from distserve_worker.unforeseen import described

log = logging.getLogger(__name__)

_IDLE_POLL_SECONDS: Final = 0.05
_THREADS: Final = 8  # of `asyncio.to_thread`


async def run_worker(config: WorkerConfig, threads: int) -> None:
    """Serve until SIGTERM or SIGINT, then drain. Raises `WorkerFailure`.

    An engine that fails may have taken all memory, and without memory `Thread.start` can wait for ever: from there on
    no thread is started.
    """
    asyncio.get_running_loop().set_default_executor(started_threads(_THREADS, "beside"))
    stop = _stop_signal()
    state, metrics = State(config.model), Metrics()
    listener = open_socket("--http-port", config.host, config.http_port)
    http_port = listener.getsockname()[1]
    pulse = Pulse()
    health = HealthServer(state, metrics, pulse)
    health.start(listener)

    def downloading(done: int, total: int) -> None:
        state.downloaded = done, total

    def loaded(share: float) -> None:
        state.loaded = share

    def build(failed: Callable[[BaseException], None]) -> Loaded:
        return load(config, threads, Watcher(downloading, loaded, failed))

    engine = EngineThread(build, pulse)
    try:
        ready = await _loaded(engine, stop)
        if ready is not None:
            worker = Worker(config, ready, engine, metrics)
            await worker.start()
            state.stage = Stage.READY
            _announce(worker, config, http_port)
            await _serve(worker, engine, state, stop, config.drain_seconds)
    finally:
        await health.stop()


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _loaded(engine: EngineThread, stop: asyncio.Event) -> Ready | None:
    """What was loaded; None when the process is told to stop before."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((engine.ready, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not engine.ready.done():
        return None
    try:
        return engine.ready.result()
    except WorkerFailure:
        raise
    except Exception as error:
        log.exception("the engine cannot be loaded")
        raise WorkerFailure(ExitReason.ENGINE_FAILED, f"loading: {described(error)}") from error


def _announce(worker: Worker, config: WorkerConfig, http_port: int) -> None:
    """One line for machines on standard output, once everything answers."""
    listening = {
        "grpc": worker.identity.address,
        "data": worker.data_endpoint,
        "http": format_address(config.advertise_host, http_port),
        "incarnation": worker.identity.incarnation,
    }
    print(json.dumps({name: value for name, value in listening.items() if value is not None}), flush=True)
    log.info("%s of %s is ready at %s", config.role, config.served_name, worker.identity.address)


async def _serve(worker: Worker, engine: EngineThread, state: State, stop: asyncio.Event, seconds: float) -> None:
    """Until the engine fails, or drained after a signal."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((engine.failed, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not engine.failed.done():
        await _drain(worker, engine, state, seconds)
    failure = _failure(engine)
    if failure is not None:
        state.stage = Stage.FAILED
        worker.dispatcher.fail_all(worker_pb2.FAILURE_CODE_INTERNAL, str(failure))
        await worker.hang_up()
        raise failure  # its thread may wait for a rank that is gone, and transfers end with the process
    await worker.close()
    await engine.stop()


async def _drain(worker: Worker, engine: EngineThread, state: State, seconds: float) -> None:
    """Not ready any more, no new work; until nobody needs this worker, or the time is over."""
    log.info("draining for at most %g s", seconds)
    state.stage = Stage.DRAINING
    worker.dispatcher.drain()
    until = time.monotonic() + seconds
    while not worker.dispatcher.idle and not engine.failed.done() and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(_IDLE_POLL_SECONDS)
    text = f"the worker had {seconds:g} s to drain and ends now"
    worker.dispatcher.fail_all(worker_pb2.FAILURE_CODE_DRAINING, text)


def _failure(engine: EngineThread) -> WorkerFailure | None:
    if not engine.failed.done():
        return None
    return failure_of(engine.failed.result())
