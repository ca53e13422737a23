"""All workers of the deployment that discovery knows: keeps a connection with each and finds pairs among them."""

import asyncio
import itertools
import logging
from collections.abc import Collection, Iterable

from distserve_proto.contract import Role
from distserve_worker.gateway import routing
from distserve_worker.gateway.routing import Candidate, Pair
from distserve_worker.gateway.workers.attaching import Target, WorkerConnection
from distserve_worker.gateway.workers.session import Session, WorkerUnreachableError

log = logging.getLogger(__name__)


class Fleet:
    """Connections by target. Only targets that discovery named are ever contacted."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._connections: dict[Target, WorkerConnection] = {}
        self._tasks: dict[Target, asyncio.Task[None]] = {}
        self._turns = itertools.count(1)
        self._reported_pairs: int | None = None

    def update(self, targets: Iterable[Target]) -> None:
        """Attach to the targets that are new and retire the connections of those that are gone."""
        wanted = dict.fromkeys(targets)  # in order: among equals the first one is chosen first
        for target, connection in self._connections.items():
            if target not in wanted:
                connection.retire()
        for target in wanted:
            self._want(target)

    async def close(self) -> None:
        """End all connections."""
        self.update(())
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def choose(self, avoid: Collection[str]) -> Pair | None:
        """The best pair that avoids some instances; both get their turn."""
        pair = routing.choose(self.candidates(), avoid)
        if pair is not None:
            for connection in self._connections.values():
                if connection.target.instance in (pair.prefill, pair.decode):
                    connection.last_turn = next(self._turns)
        return pair

    def session(self, instance: str) -> Session:
        """The stream of an instance. Raises `WorkerUnreachableError` when it has just ended."""
        for connection in self._connections.values():
            if connection.target.instance == instance and connection.session is not None and not connection.retired:
                return connection.session
        raise WorkerUnreachableError(f"the stream to {instance} has ended")

    def candidates(self) -> list[Candidate]:
        """Workers that take new requests now."""
        return [
            connection.session.candidate(connection.last_turn)
            for connection in self._connections.values()
            if connection.session is not None and connection.session.open and not connection.retired
        ]

    def usable_pairs(self) -> int:
        """Pairs that could serve a request now."""
        return routing.usable_pairs(self.candidates())

    def ready(self, role: Role) -> int:
        """Instances of a role that take requests."""
        return sum(candidate.role is role for candidate in self.candidates())

    def longest_request(self) -> int | None:
        """The most tokens of one request that every usable instance can hold; None without a pair."""
        return routing.longest_request(self.candidates())

    def shortage(self) -> str:
        """Why there is no usable pair."""
        return routing.shortage(self.candidates())

    def queued_tokens(self, instance: str) -> int:
        """Tokens that a new prefill on `instance` waits for."""
        return sum(known.queued_tokens for known in self.candidates() if known.instance == instance)

    def _want(self, target: Target) -> None:
        connection = self._connections.get(target)
        if connection is not None:
            connection.restore()
            return
        connection = self._connections[target] = WorkerConnection(target, self._model, self._announce)
        task = self._tasks[target] = asyncio.create_task(connection.run(), name=f"attach {target.instance}")
        task.add_done_callback(lambda _: self._forget(target, connection))

    def _forget(self, target: Target, connection: WorkerConnection) -> None:
        del self._connections[target], self._tasks[target]
        if not connection.retired:  # restored in the moment in which it ended
            self._want(target)

    def _announce(self) -> None:
        pairs = self.usable_pairs()
        if pairs != self._reported_pairs:
            log.info("usable pairs: %d", pairs)
        self._reported_pairs = pairs
