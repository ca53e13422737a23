"""First-come-first-served queues as linked lists over request numbers: a request is in at most one queue at a time."""

from typing import Final, NamedTuple

import numpy as np

from distserve_operator.placement.simulation.compiling import compiled

NOBODY: Final = -1

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


class Fifos(NamedTuple):
    """One queue for each instance: its first and last request, `NOBODY` when empty."""

    head: Numbers
    tail: Numbers


def empty_fifos(count: int) -> Fifos:
    """Queues for so many instances."""
    return Fifos(np.full(count, NOBODY), np.full(count, NOBODY))


@compiled
def push(fifos: Fifos, following: Numbers, instance: int, request: int) -> None:
    """Append a request."""
    following[request] = NOBODY
    if fifos.head[instance] == NOBODY:
        fifos.head[instance] = request
    else:
        following[fifos.tail[instance]] = request
    fifos.tail[instance] = request


@compiled
def push_first(fifos: Fifos, following: Numbers, instance: int, request: int) -> None:
    """Put a request before all others."""
    following[request] = fifos.head[instance]
    if fifos.head[instance] == NOBODY:
        fifos.tail[instance] = request
    fifos.head[instance] = request


@compiled
def pop(fifos: Fifos, following: Numbers, instance: int) -> int:
    """Remove and return the first request; there must be one."""
    request = fifos.head[instance]
    fifos.head[instance] = following[request]
    return int(request)


@compiled
def unlink(fifos: Fifos, following: Numbers, instance: int, previous: int, request: int) -> None:
    """Remove a request that stands behind `previous` (`NOBODY`: it is the first)."""
    if previous == NOBODY:
        fifos.head[instance] = following[request]
    else:
        following[previous] = following[request]
    if fifos.tail[instance] == request:
        fifos.tail[instance] = previous
