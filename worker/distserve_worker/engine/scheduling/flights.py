"""Steps on their way: the requests in them keep their blocks until the step is done."""

from distserve_worker.engine.request import Request
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.interface import Step


class Flights:
    """Which requests and lanes are in steps on their way, and which of the requests have left meanwhile."""

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self._requests: set[Request] = set()
        self._lanes: set[int] = set()
        self._left: set[Request] = set()

    def __contains__(self, request: Request) -> bool:
        return request in self._requests

    def has_lane(self, lane: int) -> bool:
        """Whether a step of running requests of `lane` is on its way."""
        return lane in self._lanes

    def begin(self, step: Step) -> Step:
        """A step sets out."""
        assert self._requests.isdisjoint(step.requests), "a request is in two steps"
        self._requests.update(step.requests)
        if step.running:
            self._lanes.add(step.lane)
        return step

    def end(self, step: Step) -> None:
        """A step is done: requests that have left since it set out give their blocks back."""
        assert self._requests.issuperset(step.requests), "the step is not on its way"
        self._requests.difference_update(step.requests)
        for request in self._left.intersection(step.requests):
            self._left.remove(request)
            self._blocks.free(request.request_id)
        if step.running:
            self._lanes.remove(step.lane)

    def free(self, request: Request) -> None:
        """Free the blocks of a request that leaves, when it is in a step on its way then at the end of that."""
        if request in self._requests:
            self._left.add(request)
        else:
            self._blocks.free(request.request_id)
