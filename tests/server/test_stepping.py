"""What the engine thread tells the event loop, and when."""

import asyncio
import threading
from pathlib import Path

import pytest

from distserve_worker.engine.blueprint import EngineConfig
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.interface import Happening, Work
from distserve_worker.server.arrivals import Admission, Batch, Begun
from distserve_worker.server.commands import Admit
from distserve_worker.server.loading import Loaded
from distserve_worker.server.pulse import Pulse
from distserve_worker.server.stepping import EngineThread

WAIT_SECONDS = 60


async def test_a_prompt_is_told_of_before_it_is_computed(wide_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody would know whose prompt it was that ended the process."""
    engine = build_engine(EngineConfig("prefill", wide_llama, 1 << 26))
    told, step = threading.Event(), engine.step

    def wait_and_step() -> tuple[Happening, ...]:
        assert told.wait(WAIT_SECONDS)
        return step()

    monkeypatch.setattr(engine, "step", wait_and_step)
    thread = EngineThread(lambda _: Loaded(engine, "digest", max_step_tokens=30), Pulse())
    heard: asyncio.Queue[Batch] = asyncio.Queue()
    thread.listen(heard.put_nowait)
    await thread.ready
    thread.post(Admit(Work("r", (5,) * 4)))
    async with asyncio.timeout(WAIT_SECONDS):
        batches = [await heard.get(), await heard.get()]
    told.set()
    await thread.stop()
    assert [[type(arrival) for arrival in batch.arrivals] for batch in batches] == [[Admission], [Begun]]
