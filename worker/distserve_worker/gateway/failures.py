"""What goes wrong with a request on a pair of workers, and whether another pair can help."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from distserve_proto.worker_pb2 import (
    FAILURE_CODE_DEADLINE,
    FAILURE_CODE_DRAINING,
    FAILURE_CODE_INVALID,
    FAILURE_CODE_KV_LOST,
    FAILURE_CODE_QUEUE_FULL,
    FAILURE_CODE_TOO_LONG,
    Failed,
)
from distserve_worker.gateway import errors
from distserve_worker.gateway.errors import ApiError


class Failure(StrEnum):
    """Why a leg failed; the values label `distserve_retries_total`."""

    STREAM_LOST = "stream_lost"
    QUEUE_FULL = "queue_full"
    DRAINING = "draining"
    KV_LOST = "kv_lost"
    INTERNAL = "internal"


_RETRIABLE: Final[Mapping[int, Failure]] = {
    FAILURE_CODE_QUEUE_FULL: Failure.QUEUE_FULL,
    FAILURE_CODE_DRAINING: Failure.DRAINING,
    FAILURE_CODE_KV_LOST: Failure.KV_LOST,
}


class LegFailedError(Exception):
    """One leg is over without a result; the request can go on elsewhere."""

    def __init__(self, failure: Failure, instance: str, message: str) -> None:
        super().__init__(f"{instance}: {message}")
        self.failure = failure
        self.instance = instance

    @property
    def avoid(self) -> frozenset[str]:
        """Instances that the next attempt must not use; a lost KV says nothing about either side."""
        return frozenset() if self.failure is Failure.KV_LOST else frozenset({self.instance})

    @property
    def costs_an_attempt(self) -> bool:
        """An instance that only refuses has not harmed the request."""
        return self.failure not in (Failure.QUEUE_FULL, Failure.DRAINING)


def failed(answer: Failed, instance: str) -> LegFailedError | ApiError:
    """The error of a worker's refusal or failure: for another pair to cure, or for the client."""
    if answer.code in (FAILURE_CODE_INVALID, FAILURE_CODE_TOO_LONG):
        code = "context_length_exceeded" if answer.code == FAILURE_CODE_TOO_LONG else None
        return errors.invalid(answer.message, code=code)
    if answer.code == FAILURE_CODE_DEADLINE:
        return errors.deadline_exceeded(answer.message)
    return LegFailedError(_RETRIABLE.get(answer.code, Failure.INTERNAL), instance, answer.message)


def final(failure: LegFailedError, reason: str) -> ApiError:
    """What the client is told when no other pair can take over; `reason` says why none can."""
    if failure.failure is Failure.QUEUE_FULL:
        return errors.too_many_requests("The queues of all instances are full")
    message = f"A worker failed on this request ({failure}) and {reason}"
    return errors.unavailable(message, "worker_failed")
