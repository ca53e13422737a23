"""An engine that hangs is seen by the probes, and one that works on a long prompt is left alone (B15)."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from distserve_worker.engine.blueprint import EngineConfig
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.interface import Happening, Work
from distserve_worker.server.arrivals import Batch
from distserve_worker.server.commands import Admit
from distserve_worker.server.health import HealthServer
from distserve_worker.server.loading import Loaded
from distserve_worker.server.metrics import Metrics
from distserve_worker.server.pulse import Pulse
from distserve_worker.server.state import Stage, State
from distserve_worker.server.stepping import EngineThread
from distserve_worker.transfer.listening import listen


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pulse(clock: Clock) -> Pulse:
    return Pulse(clock)


@pytest.fixture
async def probes(pulse: Pulse) -> AsyncIterator[httpx.AsyncClient]:
    """The HTTP port of a worker whose engine is ready."""
    state = State("model")
    state.stage = Stage.READY
    server = HealthServer(state, Metrics(), pulse)
    listener = listen("127.0.0.1", 0)
    server.start(listener)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60) as client:
        yield client
    await server.stop()


def test_an_engine_without_work_may_rest_for_ever(pulse: Pulse, clock: Clock) -> None:
    pulse.begin()
    pulse.rest()
    clock.now += 1e6
    assert pulse.complaint is None


def test_commands_that_nobody_answers_are_a_hung_engine(pulse: Pulse, clock: Clock) -> None:
    pulse.begin()
    clock.now += 60
    assert pulse.complaint is None
    clock.now += 1
    assert pulse.complaint is not None


def test_a_step_may_take_as_long_as_its_tokens_need(pulse: Pulse, clock: Clock) -> None:
    """B15: ten minutes for a thousand tokens are slow, but no fault."""
    pulse.begin(1200)
    clock.now += 600
    assert pulse.complaint is None
    clock.now += 100
    assert pulse.complaint == "the engine is hung: 1200 tokens take 700 s, 660 s are generous"


def test_every_turn_begins_anew(pulse: Pulse, clock: Clock) -> None:
    for _ in range(100):
        pulse.begin(10)
        clock.now += 30
    assert pulse.complaint is None


async def test_a_hung_engine_is_neither_alive_nor_ready(pulse: Pulse, clock: Clock, probes: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/readyz"):
        assert (await probes.get(path)).status_code == httpx.codes.OK
    pulse.begin(8)
    clock.now += 65
    for path in ("/healthz", "/readyz"):
        answer = await probes.get(path)
        assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert answer.text.startswith("the engine is hung: 8 tokens")


async def test_a_step_that_never_ends_is_noticed_with_the_tokens_that_it_runs(
    wide_llama: Path, monkeypatch: pytest.MonkeyPatch, pulse: Pulse, clock: Clock
) -> None:
    """The step stands still as a deadlocked kernel would, until the test lets it go."""
    engine = build_engine(EngineConfig("prefill", wide_llama, 1 << 26))
    hangs, goes_on = threading.Event(), threading.Event()

    def hang() -> tuple[Happening, ...]:
        hangs.set()
        assert goes_on.wait(60)
        return ()

    monkeypatch.setattr(engine, "step", hang)
    thread = EngineThread(lambda _: Loaded(engine, "digest", max_step_tokens=30), pulse)
    heard: asyncio.Queue[Batch] = asyncio.Queue()
    thread.listen(heard.put_nowait)
    await thread.ready
    thread.post(Admit(Work("long", (5,) * 40)))
    assert await asyncio.to_thread(hangs.wait, 60)
    seen = []
    for seconds in (70, 6):
        clock.now += seconds
        seen.append(pulse.complaint)
    assert seen == [None, "the engine is hung: 30 tokens take 76 s, 75 s are generous"]
    engine.cancel("long")
    goes_on.set()
    await thread.stop()
