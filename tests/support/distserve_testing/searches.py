"""What a test has done in the place of a search; here, as the process of a search must be able to import it."""

import os
import signal
import time
from typing import Any

from distserve_operator.reconciling.finding import Assignment

FOUND: dict[str, Any] = {
    "outcome": "Feasible",
    "shape": "2xTP1 -> 1xTP1",
    "devices": 3,
    "prefill": {"tp": 1, "pp": 1, "replicas": 2},
    "decode": {"tp": 1, "pp": 1, "replicas": 1},
    "goodput": "4.2",
    "goodputPerDevice": "1.4",
}


def find_at_once(_: Assignment) -> dict[str, Any]:
    """Always the same."""
    return FOUND


def echo(value: object) -> object:
    """The argument, as it arrived."""
    return value


def process_id(_: object) -> int:
    """Of the process that it runs in."""
    return os.getpid()


def fail(message: str) -> None:
    """A mistake in the search."""
    raise ValueError(message)


def crash(_: object) -> None:
    """What the kernel does to a process that takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def leave(_: object) -> None:
    """The interpreter ends."""
    os._exit(3)


def hang(_: object) -> None:
    """Longer than any test."""
    time.sleep(3600)
