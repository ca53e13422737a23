"""What a gateway hears of what happens in an engine. Elsewhere: the same over whole processes."""

from collections.abc import Callable

import pytest

from distserve_proto.worker_pb2 import FAILURE_CODE_INTERNAL, FAILURE_CODE_NOT_FINITE, RequestEvent, Submit
from distserve_worker.engine.interface import Dropped, Load, Starved
from distserve_worker.server.arrivals import Arrival, Batch, Begun
from distserve_worker.server.colocating import Colocating
from distserve_worker.server.commands import Admit, Command, Drop
from distserve_worker.server.dispatching import Dispatcher
from distserve_worker.server.legs import Legs
from distserve_worker.server.metrics import Metrics
from distserve_worker.server.streams import Streams

LOAD = Load(queued_tokens=0, waiting=0, running=0, free_blocks=1, total_blocks=1, parked=0)


async def told(happens: Callable[[str], Arrival]) -> tuple[RequestEvent, Command]:
    """What comes of it for a request that has been submitted, and the last command to the engine."""
    commands: list[Command] = []
    metrics, streams = Metrics(), Streams(LOAD)
    dispatcher = Dispatcher(commands.append, Colocating(commands.append), Legs(metrics), streams, metrics, 1)
    outbox = dispatcher.attach()
    dispatcher.submit(outbox, Submit(request_id="r", prompt=[1]))
    (admit,) = commands
    assert isinstance(admit, Admit)
    dispatcher.hear(Batch((happens(admit.work.request_id),), LOAD))
    message = await outbox.next()
    assert message is not None
    (event,) = message.events
    return event, commands[-1]


async def test_a_prompt_that_is_begun_is_told_at_once() -> None:
    event, last = await told(lambda key: Begun(key, cached_tokens=0, time=1.0))
    assert event.WhichOneof("change") == "started"
    assert isinstance(last, Admit)


@pytest.mark.parametrize(("kind", "code"), [(Starved, FAILURE_CODE_INTERNAL), (Dropped, FAILURE_CODE_NOT_FINITE)])
async def test_why_a_request_failed_says_whether_another_worker_may_help(
    kind: type[Starved | Dropped], code: int
) -> None:
    """One may have memory for a step for which there was none here; numbers are the same everywhere."""
    event, last = await told(lambda key: kind(key, "because"))
    assert (event.failed.code, event.failed.message) == (code, "because")
    assert isinstance(last, Drop)
