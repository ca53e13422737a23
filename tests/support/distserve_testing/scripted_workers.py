"""Workers that speak the real wire but follow a script, for failures that real ones do not show on demand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc import aio
from typing_extensions import override

from distserve_proto.channels import SERVER_OPTIONS
from distserve_proto.kv_pb2 import KvHandle
from distserve_proto.worker_pb2 import (
    FINISH_REASON_LENGTH,
    DescribeRequest,
    Description,
    Failed,
    Finished,
    GatewayMessage,
    Joined,
    Load,
    Parked,
    PutBack,
    RequestEvent,
    Stages,
    Submit,
    WorkerMessage,
)
from distserve_proto.worker_pb2_grpc import WorkerServicer, add_WorkerServicer_to_server

WAIT_SECONDS = 30
TOKENIZER_DIGEST = "tokenizer"
HANG_UP = "hang up"

Act = Callable[[Submit], Iterable[RequestEvent] | str]


def fails(code: Any) -> Act:
    return lambda submit: [RequestEvent(request_id=submit.request_id, failed=Failed(code=code, message="scripted"))]


def hangs_up(_: Submit) -> str:
    return HANG_UP


def says_nothing(_: Submit) -> Iterable[RequestEvent]:
    return []


def begins(then: Act) -> Act:
    """Compute the prompt; then do something else."""

    def act(submit: Submit) -> Iterable[RequestEvent]:
        begun = RequestEvent(request_id=submit.request_id)
        begun.started.SetInParent()
        after = then(submit)
        return [begun, RequestEvent(request_id=HANG_UP)] if isinstance(after, str) else [begun, *after]

    return act


def next_token(submit: Submit) -> int:
    """Deterministic in the position: 100, 101, 102, ..."""
    return 100 + len(submit.output)


def prefills(submit: Submit) -> Iterable[RequestEvent]:
    handle = KvHandle(request_id=f"kv of {submit.request_id}", tokens=len(submit.prompt) + len(submit.output))
    parked = Parked(kv=handle, stages=Stages(prefill=1))
    return [RequestEvent(request_id=submit.request_id, tokens=[next_token(submit)], parked=parked)]


def finishes_at_once(submit: Submit) -> Iterable[RequestEvent]:
    finished = Finished(reason=FINISH_REASON_LENGTH, stages=Stages(prefill=1))
    return [RequestEvent(request_id=submit.request_id, tokens=[next_token(submit)], finished=finished)]


def decodes(tokens: int, then: Act | None = None) -> Act:
    """Produce some tokens; then finish, or do something else."""

    def act(submit: Submit) -> Iterable[RequestEvent] | str:
        first = next_token(submit)
        stages = Stages(transfer=2, kv_bytes=7, transport="tcp")
        events = [RequestEvent(request_id=submit.request_id, joined=Joined(stages=stages))]
        events += [RequestEvent(request_id=submit.request_id, tokens=[first + step]) for step in range(tokens)]
        if then is None:
            finished = Finished(reason=FINISH_REASON_LENGTH, stages=stages)
            events.append(RequestEvent(request_id=submit.request_id, finished=finished))
            return events
        after = then(submit)
        return [*events, RequestEvent(request_id=HANG_UP)] if isinstance(after, str) else [*events, *after]

    return act


def puts_back(submit: Submit) -> Iterable[RequestEvent]:
    return [RequestEvent(request_id=submit.request_id, put_back=PutBack())]


class ScriptedWorker(WorkerServicer):
    """Does the next act for each submission, and remembers what it was sent."""

    def __init__(self, phase: Any, *acts: Act) -> None:
        self._phase = phase
        self._acts = list(acts)
        self.submits: list[Submit] = []
        self.cancelled: list[str] = []
        self.address = ""
        self.load = Load()
        self.max_waiting = 0
        self.changed = asyncio.Event()

    @override
    async def Describe(self, request: DescribeRequest, context: aio.ServicerContext[Any, Any]) -> Description:
        description = Description(phase=self._phase, incarnation=self.address, model="m", compatibility_key="k")
        description.max_model_length = description.max_request_tokens = 1000
        description.tokenizer_digest = TOKENIZER_DIGEST
        description.max_waiting = self.max_waiting
        description.load.CopyFrom(self.load)
        return description

    @override
    async def Attach(
        self, request_iterator: AsyncIterator[GatewayMessage], context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[WorkerMessage]:
        yield WorkerMessage(load=self.load)
        taken = 0
        async for message in request_iterator:
            if message.HasField("cancel"):
                self.cancelled.append(message.cancel.request_id)
                self.changed.set()
                continue
            taken += 1
            self.submits.append(message.submit)
            events = self._acts.pop(0)(message.submit)
            self.changed.set()
            for event in [RequestEvent(request_id=HANG_UP)] if isinstance(events, str) else events:
                if event.request_id == HANG_UP:
                    await context.abort(grpc.StatusCode.INTERNAL, "scripted")
                yield WorkerMessage(load=self.load, events=[event], submits_taken=taken)

    def do(self, act: Act) -> None:
        """Add one act to the script."""
        self._acts.append(act)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on what was sent holds."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def until_cancelled(self, request_id: str) -> None:
        """Wait for a cancel."""
        await self.until(lambda: request_id in self.cancelled)


@asynccontextmanager
async def listening(*workers: ScriptedWorker) -> AsyncIterator[None]:
    """Serve all workers, each at an address of its own."""
    servers = []
    for worker in workers:
        server = aio.server(options=SERVER_OPTIONS)
        add_WorkerServicer_to_server(worker, server)
        worker.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        servers.append(server)
    yield
    for server in servers:
        await server.stop(None)
