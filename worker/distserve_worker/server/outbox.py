"""Messages of one stream on their way to its gateway: bounded, one per engine step."""

import asyncio
from collections import deque

from distserve_proto import worker_pb2


class Outbox:
    """Collects the events of a step, then queues them as one message.

    A load that changed without events of this stream is sent when nothing else waits, and only the latest one; so is
    the count of submissions that it knows of. A gateway that does not read fast enough overflows its outbox, which
    ends the stream.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[str, worker_pb2.RequestEvent] = {}
        self._queue: deque[worker_pb2.WorkerMessage] = deque()
        self._latest: worker_pb2.WorkerMessage | None = None  # without events
        self._sent: worker_pb2.WorkerMessage | None = None
        self._changed = asyncio.Event()
        self._closed = False
        self.overflowed = asyncio.Event()
        self.submits_taken = 0

    def event(self, request_id: str) -> worker_pb2.RequestEvent:
        """The event of a request in the message that is being collected."""
        return self._open.setdefault(request_id, worker_pb2.RequestEvent(request_id=request_id))

    def flush(self, load: worker_pb2.Load) -> None:
        """Queue what was collected; without events, remember the load."""
        if self._closed:
            return
        self._latest = worker_pb2.WorkerMessage(load=load, submits_taken=self.submits_taken)
        if self._open:
            events = self._open.values()
            self._append(worker_pb2.WorkerMessage(load=load, submits_taken=self.submits_taken, events=events))
            self._open.clear()
        self._changed.set()

    def close(self) -> None:
        """No more messages: `next` returns what is queued, then None."""
        self._closed = True
        self._changed.set()

    async def next(self) -> worker_pb2.WorkerMessage | None:
        """Wait for the next message; None at the end."""
        while True:
            if self._queue:
                message = self._queue.popleft()
                self._sent = worker_pb2.WorkerMessage(load=message.load, submits_taken=message.submits_taken)
                return message
            if self._latest is not None and self._latest != self._sent:
                self._sent = self._latest
                return self._latest
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()

    def _append(self, message: worker_pb2.WorkerMessage) -> None:
        if len(self._queue) < self._limit:
            self._queue.append(message)
            return
        self._queue.clear()
        self._latest = None
        self.overflowed.set()
        self.close()
