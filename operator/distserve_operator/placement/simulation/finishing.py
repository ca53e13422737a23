"""The running requests of an instance as a heap by the step in which they end; equal ones in order of their number."""

import numpy as np

from distserve_operator.placement.simulation.compiling import compiled

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


@compiled
def _before(steps: Numbers, requests: Numbers, one: int, other: int) -> bool:
    if steps[one] != steps[other]:
        return bool(steps[one] < steps[other])
    return bool(requests[one] < requests[other])


@compiled
def _swap(steps: Numbers, requests: Numbers, one: int, other: int) -> None:
    steps[one], steps[other] = steps[other], steps[one]
    requests[one], requests[other] = requests[other], requests[one]


@compiled
def add(steps: Numbers, requests: Numbers, size: int, step: int, request: int) -> None:
    """Add a request to a heap of `size`."""
    steps[size], requests[size] = step, request
    child = size
    while child > 0 and _before(steps, requests, child, (child - 1) // 2):
        _swap(steps, requests, child, (child - 1) // 2)
        child = (child - 1) // 2


@compiled
def remove(steps: Numbers, requests: Numbers, size: int, place: int) -> int:
    """Take the request at `place` (0: the next to end) out of a heap of `size`; returns it."""
    request = requests[place]
    last = size - 1
    steps[place], requests[place] = steps[last], requests[last]
    while place > 0 and place < last and _before(steps, requests, place, (place - 1) // 2):
        _swap(steps, requests, place, (place - 1) // 2)
        place = (place - 1) // 2
    while True:
        child = 2 * place + 1
        if child >= last:
            return int(request)
        if child + 1 < last and _before(steps, requests, child + 1, child):
            child += 1
        if not _before(steps, requests, child, place):
            return int(request)
        _swap(steps, requests, child, place)
        place = child
