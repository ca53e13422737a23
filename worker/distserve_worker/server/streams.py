"""The streams of all gateways, and the load that is reported to every one of them."""

from distserve_proto import worker_pb2
from distserve_worker.engine.interface import Load
from distserve_worker.server.outbox import Outbox
from distserve_worker.server.wire import load_message

MAX_STREAMS = 64
MAX_MESSAGES = 1024  # of one stream: some seconds of steps


class TooManyStreams(Exception):  # noqa: N818 - an answer to one gateway
    """The worker has as many streams as it takes."""


class Streams:
    """Open outboxes and the current load; used on the event loop only."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._outboxes: set[Outbox] = set()
        self._pending: dict[str, int] = {}  # tokens of legs that the engine has not seen yet
        self._before_drain: frozenset[Outbox] | None = None

    @property
    def draining(self) -> bool:
        """Whether new work goes elsewhere."""
        return self._before_drain is not None

    @property
    def pending(self) -> int:
        """Legs that the engine has not answered yet."""
        return len(self._pending)

    @property
    def load(self) -> worker_pb2.Load:
        """What the worker has to do right now."""
        return load_message(self._load, self.draining, len(self._pending), sum(self._pending.values()))

    def open(self) -> Outbox:
        """A new stream; its first message is the load. Raises `TooManyStreams`."""
        if len(self._outboxes) >= MAX_STREAMS:
            raise TooManyStreams(f"{MAX_STREAMS} streams are attached, which is the limit")
        outbox = Outbox(MAX_MESSAGES)
        self._outboxes.add(outbox)
        outbox.flush(self.load)
        return outbox

    def drain(self) -> None:
        """New work goes elsewhere from now on."""
        self._before_drain = frozenset(self._outboxes)

    def is_from_before_drain(self, outbox: Outbox) -> bool:
        """Whether its gateway was attached when the worker began to drain."""
        return self._before_drain is not None and outbox in self._before_drain

    def close(self, outbox: Outbox) -> None:
        """The stream has ended."""
        self._outboxes.discard(outbox)

    def close_all(self) -> None:
        """Let every stream end after what is queued on it."""
        for outbox in self._outboxes:
            outbox.close()

    def submitted(self, key: str, tokens: int) -> None:
        """A leg is on its way to the engine and counts as queued from now on."""
        self._pending[key] = tokens

    def answered(self, key: str) -> None:
        """The engine knows the leg, or has refused it."""
        self._pending.pop(key, None)

    def update(self, load: Load) -> None:
        """The engine's own view changed."""
        self._load = load

    def flush(self) -> None:
        """Send what was collected, and the load where it changed."""
        load = self.load
        for outbox in self._outboxes:
            outbox.flush(load)
