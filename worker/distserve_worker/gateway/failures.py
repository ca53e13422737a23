"""What goes wrong with a request on a pair of workers, and whether another pair can help."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from distserve_proto.worker_pb2 import (
    FAILURE_CODE_DEADLINE,
    FAILURE_CODE_DRAINING,
    FAILURE_CODE_INVALID,
    FAILURE_CODE_KV_LOST,
    FAILURE_CODE_KV_UNREACHABLE,
    FAILURE_CODE_NOT_FINITE,
    FAILURE_CODE_QUEUE_FULL,
    FAILURE_CODE_TOO_LONG,
    Failed,
)
from distserve_worker.gateway import errors
from distserve_worker.gateway.errors import ApiError
from distserve_worker.gateway.routing import Candidate


class Failure(StrEnum):
    """Why a leg failed; the values label `distserve_retries_total`."""

    STREAM_LOST = "stream_lost"
    QUEUE_FULL = "queue_full"
    DRAINING = "draining"
    REFUSED = "refused"  # as invalid or too long, although the gateway has checked it
    KV_LOST = "kv_lost"
    KV_UNREACHABLE = "kv_unreachable"
    NO_DECODE = "no_decode"
    PUT_BACK = "put_back"  # out of KV memory, to go on through prefill
    INTERNAL = "internal"


_FAILURES: Final[Mapping[int, Failure]] = {
    FAILURE_CODE_QUEUE_FULL: Failure.QUEUE_FULL,
    FAILURE_CODE_DRAINING: Failure.DRAINING,
    FAILURE_CODE_INVALID: Failure.REFUSED,
    FAILURE_CODE_TOO_LONG: Failure.REFUSED,
    FAILURE_CODE_KV_LOST: Failure.KV_LOST,
    FAILURE_CODE_KV_UNREACHABLE: Failure.KV_UNREACHABLE,
}


class LegFailedError(Exception):
    """One leg is over without a result; `avoid` holds the incarnations that the request should not meet again."""

    def __init__(self, failure: Failure, instance: str, message: str, avoid: frozenset[str]) -> None:
        super().__init__(f"{instance}: {message}")
        self.failure = failure
        self.avoid = avoid
        self.computing = False  # whether the worker was computing the request and had no token of it yet

    def after(self, earlier: frozenset[str]) -> "LegFailedError":
        """The same failure; the incarnations that failed before it are to be avoided too."""
        self.avoid |= earlier
        return self

    @property
    def may_be_its_doing(self) -> bool:
        """Whether the request itself may have ended the worker: it was computed there, not merely queued or kept.

        One that has had tokens from a worker is less likely to: workers end for many reasons, and it was there long.
        """
        return self.computing and self.failure in (Failure.STREAM_LOST, Failure.INTERNAL)

    @property
    def costs_an_attempt(self) -> bool:
        """An instance that only refuses has not harmed the request, and one that puts it back has brought it on."""
        return self.failure not in (Failure.QUEUE_FULL, Failure.DRAINING, Failure.PUT_BACK)


def lost(worker: Candidate, reason: str) -> LegFailedError:
    """The stream to a worker is gone."""
    return LegFailedError(Failure.STREAM_LOST, worker.instance, reason, frozenset({worker.incarnation}))


def failed(answer: Failed, worker: Candidate, prefill: Candidate) -> LegFailedError | ApiError:
    """The error of what `worker` answered: for another worker to cure, or for the client."""
    if answer.code == FAILURE_CODE_DEADLINE:
        return errors.deadline_exceeded(answer.message)
    if answer.code == FAILURE_CODE_NOT_FINITE and worker.incarnation == prefill.incarnation:
        # that of a decode leg may be its KV's or its device's fault: going through prefill again tells
        return errors.model_failed(f"{worker.instance}: {answer.message}")
    failure = _FAILURES.get(answer.code, Failure.INTERNAL)
    avoid = {Failure.KV_LOST: (), Failure.KV_UNREACHABLE: (prefill.incarnation,)}
    # a lost KV says nothing about either side; one that cannot be reached speaks against its holder
    return LegFailedError(
        failure, worker.instance, answer.message, frozenset(avoid.get(failure, (worker.incarnation,)))
    )


def no_decode(prefill: Candidate) -> LegFailedError:
    """No decode instance is left for KV that is parked."""
    return LegFailedError(Failure.NO_DECODE, prefill.instance, "no decode instance can take its KV", frozenset())


def put_back(worker: Candidate) -> LegFailedError:
    """The instance has no KV memory left for it now; nothing speaks against the same instance next time."""
    return LegFailedError(Failure.PUT_BACK, worker.instance, "its KV memory is full", frozenset())


def final(failure: LegFailedError, reason: str) -> ApiError:
    """What the client is told when no other pair can take over; `reason` says why none can."""
    if failure.failure is Failure.QUEUE_FULL:
        return queues_full()
    message = f"A worker failed on this request ({failure}) and {reason}"
    return errors.unavailable(message, "worker_failed")


def queues_full() -> ApiError:
    """Every instance that could take the request has more than it can queue."""
    return errors.too_many_requests("The queues of all instances are full")
