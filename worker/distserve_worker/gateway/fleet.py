"""All workers of the deployment that discovery knows: keeps a connection with each and finds pairs among them."""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from distserve_proto.contract import Role
from distserve_worker.gateway import routing
from distserve_worker.gateway.routing import Candidate, Need
from distserve_worker.gateway.workers.attaching import Target, WorkerConnection
from distserve_worker.gateway.workers.session import Session, WorkerUnreachableError

log = logging.getLogger(__name__)


class Fleet:
    """Connections by target. Only targets that discovery named are ever contacted."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.tokenizer_digest: str | None = None  # known once the tokenizer is loaded; until then nothing is usable
        self._heading: Counter[str] = Counter()
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

    def choose_first(self, need: Need) -> Candidate | None:
        """The best instance for a request to begin on, which gets its turn."""
        return self._turn(routing.choose_first(self.candidates(), need))

    def choose_decode(self, key: str, need: Need) -> Candidate | None:
        """The best decode instance for KV of `key`, which gets its turn."""
        return self._turn(routing.choose_decode(self.candidates(), key, need))

    @contextmanager
    def heading_for_decode(self, key: str) -> Iterator[None]:
        """While the block runs, a request will need a place in a decode instance of `key`."""
        self._heading[key] += 1
        try:
            yield
        finally:
            self._heading[key] -= 1

    def is_full(self, first: Candidate) -> bool:
        """Whether a request that begins there would find no place to go on: those on their way will take them all."""
        if first.role is Role.COLOCATED:
            return first.places is not None and first.requests >= first.places
        free = routing.free_places(self.candidates(), first.compatibility_key)
        return free is not None and self._heading[first.compatibility_key] >= free

    def session(self, worker: Candidate) -> Session:
        """The stream of a worker. Raises `WorkerUnreachableError` when it has just ended."""
        for connection in self._connections.values():
            session = connection.session
            if session is not None and session.description.incarnation == worker.incarnation:
                return session
        raise WorkerUnreachableError(f"the stream to {worker.instance} has ended")

    def candidates(self) -> list[Candidate]:
        """Workers with a stream that have this gateway's tokenizer."""
        return [
            connection.session.candidate(connection.last_turn, retired=connection.retired)
            for connection in self._connections.values()
            if connection.session is not None and self._understands(connection.session)
        ]

    def usable_pairs(self) -> int:
        """Pairs that could serve a request now."""
        return routing.usable_pairs(self.candidates())

    def ready(self, role: Role) -> int:
        """Instances of a role that take requests."""
        return sum(worker.role is role and not worker.leaving for worker in self.candidates())

    def longest_request(self) -> int | None:
        """The most tokens of one request that every usable instance can hold; None without a pair."""
        return routing.longest_request(self.candidates())

    def shortage(self) -> str:
        """Why there is no usable pair."""
        attached = [connection.session for connection in self._connections.values() if connection.session is not None]
        strange = sum(not self._understands(session) for session in attached)
        others = f"; {strange} more have another tokenizer than this gateway" if strange else ""
        return routing.shortage(self.candidates()) + others

    def _understands(self, session: Session) -> bool:
        """Token ids of another vocabulary would be another text."""
        return session.description.tokenizer_digest == self.tokenizer_digest

    def _turn(self, worker: Candidate | None) -> Candidate | None:
        for connection in self._connections.values():
            if worker is not None and connection.target.instance == worker.instance:
                connection.last_turn = next(self._turns)
        return worker

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
