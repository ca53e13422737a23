"""The side of a rank's process: does with its own agent what the driver asks for."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

from distserve_worker.transfer.agent import Agent, Choice
from distserve_worker.transfer.interface import Fault, Source, Transfer, TransferError
from distserve_worker.transfer.remote.messages import (
    Abort,
    Answer,
    Choose,
    Ended,
    Failure,
    Hello,
    Offer,
    Pull,
    Request,
    Withdraw,
)
from distserve_worker.transfer.remote.sending import Sender

log = logging.getLogger(__name__)

_MAX_TRANSFERS: Final = 64  # pulls side by side; more wait
_MAX_TRIES: Final = 8


def serve_agent(connection: Connection, agent: Agent) -> None:
    """Obey until the driver closes its end or is gone; then everything of the agent ends too. Takes over both."""
    service = _Service(connection, agent)
    try:
        while True:
            service.obey(connection.recv())
    except (EOFError, OSError):
        log.info("the driver has closed the transports of this rank")
    finally:
        service.close()
        connection.close()


class _Service:
    def __init__(self, connection: Connection, agent: Agent) -> None:
        self._agent = agent
        self._sender = Sender(connection, "kv-answers")
        self._pulling = ThreadPoolExecutor(_MAX_TRANSFERS, thread_name_prefix="kv-puller")
        self._trying = ThreadPoolExecutor(_MAX_TRIES, thread_name_prefix="kv-trying")
        self._running: dict[int, Transfer] = {}
        self._sender.put(Hello(agent.ways))

    def obey(self, request: Request) -> None:
        match request:
            case Offer(call):
                self._answer(call, partial(self._offer, request))
            case Choose(call, ways, seconds):
                self._trying.submit(self._answer, call, partial(self._agent.choose, ways, seconds))
            case Pull(call):
                self._pull(request)
            case Withdraw(transport, ticket):
                self._agent.withdraw(transport, ticket)
            case Abort(call):
                transfer = self._running.get(call)
                if transfer is not None:
                    transfer.abort()

    def close(self) -> None:
        for transfer in tuple(self._running.values()):
            transfer.abort()
        self._trying.shutdown(cancel_futures=True)
        self._pulling.shutdown()
        self._agent.close()
        self._sender.close()

    def _offer(self, request: Offer) -> Source:
        def ended(error: TransferError | None) -> None:
            self._sender.put(Ended(request.call, None if error is None else Failure.of(error)))

        return self._agent.offer(request.transport, request.share, request.seconds, ended)

    def _pull(self, request: Pull) -> None:
        """Begun here, so that an abort that comes next finds it."""
        try:
            transfer = self._agent.begin(request.transport, request.source, request.share, request.seconds)
        except TransferError as error:
            self._sender.put(Answer(request.call, Failure.of(error)))
            return
        self._running[request.call] = transfer
        self._pulling.submit(self._run, request.call, transfer)

    def _run(self, call: int, transfer: Transfer) -> None:
        self._answer(call, transfer.run)
        del self._running[call]

    def _answer(self, call: int, action: Callable[[], Source | Choice | None]) -> None:
        result: Source | Choice | Failure | None
        try:
            result = action()
        except TransferError as error:
            result = Failure.of(error)
        except Exception as error:
            log.exception("a transport failed")
            result = Failure(Fault.ABORTED, f"the rank failed: {error!r}")
        self._sender.put(Answer(call, result))
