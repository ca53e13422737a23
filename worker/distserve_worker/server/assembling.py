"""Puts the parts of a worker together around a loaded engine, and takes them apart."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import grpc.aio

from distserve_proto import kv_pb2_grpc, worker_pb2, worker_pb2_grpc
from distserve_proto.addresses import format_address
from distserve_proto.channels import SERVER_OPTIONS
from distserve_proto.contract import Role
from distserve_worker.server.arguments import WorkerConfig
from distserve_worker.server.arrivals import Ready
from distserve_worker.server.colocating import Colocating
from distserve_worker.server.dispatching import Dispatcher
from distserve_worker.server.fetching import Fetching
from distserve_worker.server.identity import Identity, compatibility_key, new_incarnation
from distserve_worker.server.kv_service import KvService
from distserve_worker.server.kv_wire import layout_message
from distserve_worker.server.legs import Legs
from distserve_worker.server.lending import Lending
from distserve_worker.server.listeners import open_grpc, open_socket
from distserve_worker.server.metrics import Metrics
from distserve_worker.server.parking import Parking
from distserve_worker.server.pulling import Puller
from distserve_worker.server.side import Side
from distserve_worker.server.stepping import EngineThread
from distserve_worker.server.streams import Streams
from distserve_worker.server.worker_service import WorkerService
from distserve_worker.transfer.agent import Agent
from distserve_worker.transfer.opening import open_agent, open_pulling_agent
from distserve_worker.transfer.remote.agent import RemoteAgent

_MAX_CALLS: Final = 1024
_STOP_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Half:
    """What only workers of one role have."""

    side: Side
    close: Callable[[], Awaitable[None]]
    data_endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class _Shared:
    """What both sides are made of."""

    config: WorkerConfig
    engine: EngineThread
    metrics: Metrics
    server: grpc.aio.Server
    legs: Legs
    streams: Streams
    identity: Identity
    ready: Ready


class Worker:
    """A worker with its ports open; made on the event loop."""

    def __init__(self, config: WorkerConfig, ready: Ready, engine: EngineThread, metrics: Metrics) -> None:
        """Open the ports. Raises `WorkerFailure`."""
        self._server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=_MAX_CALLS)
        port = open_grpc(self._server, "--grpc-port", config.host, config.grpc_port)
        self.identity = _identity(config, ready, port)
        legs, streams = Legs(metrics), Streams(ready.load)
        shared = _Shared(config, engine, metrics, self._server, legs, streams, self.identity, ready)
        self._half = _HALVES[config.role](shared)
        self.dispatcher = Dispatcher(engine.post, self._half.side, legs, streams, metrics, config.max_waiting)
        description = _description(config, ready, self.identity, self._half.side)
        worker_pb2_grpc.add_WorkerServicer_to_server(WorkerService(self.dispatcher, description), self._server)
        metrics.show(ready.load)
        engine.listen(self.dispatcher.hear)

    @property
    def data_endpoint(self) -> str | None:
        """Where KV data is served, on a prefill worker."""
        return self._half.data_endpoint

    async def start(self) -> None:
        """Answer from now on."""
        await self._server.start()

    async def hang_up(self) -> None:
        """Send what is queued, then end every stream and call; starts no thread."""
        self.dispatcher.close()
        await self._server.stop(_STOP_SECONDS)

    async def close(self) -> None:
        """Hang up, then end every transfer."""
        await self.hang_up()
        await self._half.close()


def _prefill_half(shared: _Shared) -> _Half:
    config = shared.config
    listener = open_socket("--data-port", config.host, config.data_port)
    endpoint = format_address(config.advertise_host, listener.getsockname()[1])
    agents = _of_all_ranks(open_agent(shared.ready.region, listener, config.advertise_host), shared.ready)
    parking = Parking(shared.engine.post, shared.legs, shared.identity, config.lease_seconds, shared.metrics)
    lending = Lending(parking, shared.identity, agents)
    kv_pb2_grpc.add_KvServicer_to_server(KvService(lending), shared.server)
    sweeping = asyncio.create_task(parking.sweep(), name="lease sweep")

    async def close() -> None:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        await asyncio.to_thread(_close, agents)

    return _Half(parking, close, endpoint)


def _decode_half(shared: _Shared) -> _Half:
    agents = _of_all_ranks(open_pulling_agent(shared.ready.region), shared.ready)
    puller = Puller(agents, shared.identity, shared.metrics)
    fetching = Fetching(shared.engine.post, shared.legs, shared.streams, shared.identity, puller)

    async def close() -> None:
        await fetching.close()
        await asyncio.to_thread(_close, agents)

    return _Half(fetching, close)


def _colocated(shared: _Shared) -> _Half:
    async def close() -> None:
        """No KV moves: there is nothing to end."""

    return _Half(Colocating(shared.engine.post), close)


_HALVES: Final[Mapping[Role, Callable[[_Shared], _Half]]] = {
    Role.PREFILL: _prefill_half,
    Role.DECODE: _decode_half,
    Role.COLOCATED: _colocated,
}


def _of_all_ranks(own: Agent, ready: Ready) -> tuple[Agent, ...]:
    """In the order of ranks; the one in this process is the first. The others have said what they have by now."""
    return (own, *(RemoteAgent(connection) for connection in ready.transfers))


def _close(agents: Sequence[Agent]) -> None:
    for agent in agents:
        agent.close()


def _identity(config: WorkerConfig, ready: Ready, port: int) -> Identity:
    return Identity(
        incarnation=new_incarnation(),
        compatibility_key=compatibility_key(ready.description),
        layout=ready.description.layout,
        shards=ready.description.shards,
        address=format_address(config.advertise_host, port),
    )


def _description(config: WorkerConfig, ready: Ready, identity: Identity, side: Side) -> worker_pb2.Description:
    return worker_pb2.Description(
        phase=side.phase,
        incarnation=identity.incarnation,
        model=config.served_name,
        compatibility_key=identity.compatibility_key,
        max_model_length=ready.description.max_model_length,
        max_request_tokens=ready.description.max_request_tokens,
        layout=layout_message(identity.layout),
        tokenizer_digest=ready.tokenizer_digest,
        max_waiting=config.max_waiting,
        max_running=0 if config.role is Role.PREFILL else config.max_running,
    )
