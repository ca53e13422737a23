"""The engine thread: owns the engine, takes commands between steps, tells the event loop what happened."""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from distserve_worker.engine.interface import Engine, Happening, Load, Parked, Refused, Reserved, Started
from distserve_worker.server.arrivals import Admission, Arrival, Batch, Begun, Exported, Ready, Step, Target
from distserve_worker.server.commands import Admit, Command, Drop, Imported, Stop
from distserve_worker.server.loading import Loaded
from distserve_worker.server.pulse import Pulse

log = logging.getLogger(__name__)

# Every leg costs at most three commands and the number of legs is bounded elsewhere: a full queue means a dead engine.
_MAX_COMMANDS: Final = 65_536
_MAX_UNHEARD: Final = 16  # batches the loop has not taken yet; then the engine waits for it
_STOP_SECONDS: Final = 5.0

T = TypeVar("T")


class EngineThread:
    """Made and used on the event loop; `failed` gets the exception that ended the engine."""

    def __init__(self, build: Callable[[Callable[[BaseException], None]], Loaded], pulse: Pulse) -> None:
        """Start loading; `ready` gets what the engine is, or the exception of `build`. `pulse` gets its progress.

        `build` is given what ends the engine from any thread, loaded or not.
        """
        self._pulse = pulse
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[Ready] = self._loop.create_future()
        self.failed: asyncio.Future[BaseException] = self._loop.create_future()
        self._listener: Callable[[Batch], None] | None = None
        self._commands: queue.Queue[Command] = queue.Queue(_MAX_COMMANDS)
        self._room = threading.Semaphore(_MAX_UNHEARD)
        self._thread = threading.Thread(target=self._run, args=(build,), name="engine", daemon=True)
        self._thread.start()

    def listen(self, listener: Callable[[Batch], None]) -> None:
        """Say who takes the batches; before the first command."""
        self._listener = listener

    def post(self, command: Command) -> None:
        """Ask something of the engine; it happens after the step that runs now."""
        try:
            self._commands.put_nowait(command)
        except queue.Full:
            self._fail(RuntimeError(f"the engine left {_MAX_COMMANDS} commands undone"))

    def fail(self, error: BaseException) -> None:
        """End the engine, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the worker with it
            self._loop.call_soon_threadsafe(self._fail, error)

    async def stop(self) -> None:
        """End the thread after its step, or give up on it."""
        self.post(Stop())
        await asyncio.to_thread(self._thread.join, _STOP_SECONDS)

    def _run(self, build: Callable[[Callable[[BaseException], None]], Loaded]) -> None:
        try:
            loaded = build(self.fail)
            engine = loaded.engine
            ready = Ready(
                engine.description, engine.load(), loaded.tokenizer_digest, engine.region, tuple(loaded.transfers)
            )
            self._loop.call_soon_threadsafe(_settle, self.ready, ready)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the loop has to know
            self._loop.call_soon_threadsafe(_settle_exception, self.ready, error)
            return
        try:
            while self._turn(loaded):
                pass
        except BaseException as error:
            log.exception("the engine failed")
            self.fail(loaded.reason(error))

    def _turn(self, loaded: Loaded) -> bool:
        """Commands, then a step; False at the end."""
        engine = loaded.engine
        commands = self._pending(block=not engine.has_work())
        self._pulse.begin()
        arrivals = [arrival for command in commands for arrival in _obey(engine, command)]
        works = engine.has_work()
        if arrivals or not works:
            self._tell(Batch(tuple(arrivals), engine.load()))
        if works:
            self._pulse.begin(min(_tokens_at_hand(engine.load()), loaded.max_step_tokens))
            if begun := engine.begin():  # told before it is computed: that may end this process
                self._tell(Batch(tuple(_prepared(engine, happening) for happening in begun), engine.load()))
            started = time.monotonic()
            arrivals = [_prepared(engine, happening) for happening in engine.step()]
            self._tell(Batch(tuple(arrivals), engine.load(), Step(started, time.monotonic())))
        return not any(isinstance(command, Stop) for command in commands)

    def _pending(self, *, block: bool) -> list[Command]:
        commands = []
        if block:
            self._pulse.rest()
            commands.append(self._commands.get())
        while True:
            try:
                commands.append(self._commands.get_nowait())
            except queue.Empty:
                return commands

    def _tell(self, batch: Batch) -> None:
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._hear, batch)

    def _hear(self, batch: Batch) -> None:
        self._room.release()
        assert self._listener is not None, "commands were posted before anybody listened"
        try:
            self._listener(batch)
        except Exception as error:
            log.exception("what the engine told could not be handled")
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
        _settle(self.failed, error)


def _tokens_at_hand(load: Load) -> int:
    """All prompts that wait, and one for each request that runs or may join the batch."""
    return load.queued_tokens + load.waiting + load.running


def _obey(engine: Engine, command: Command) -> tuple[Arrival, ...]:
    match command:
        case Admit(work):
            try:
                engine.admit(work)
            except Refused as refusal:
                return (Admission(work.request_id, refusal),)
            return (Admission(work.request_id, None),)
        case Drop(key):
            engine.cancel(key)
            engine.unpin(key)
        case Imported(key):
            engine.imported(key)
        case Stop():
            pass
    return ()


def _prepared(engine: Engine, happening: Happening) -> Arrival:
    """Ask for the blocks at once: a reader would have to wait for the end of the next step otherwise."""
    match happening:
        case Started(key, cached_tokens):
            return Begun(key, cached_tokens, time.monotonic())
        case Parked(key, blocks):
            engine.export(key, blocks)
            return Exported(happening)
        case Reserved(key):
            return Target(key, engine.import_target(key))
        case _:
            return happening


def _settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _settle_exception(future: asyncio.Future[Ready], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
