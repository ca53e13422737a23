"""Steps on their way: the requests in them keep their blocks until the step is done."""

from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.interface import Step


class Flights:
    """Which requests and lanes are in steps on their way, and which of the requests have left meanwhile."""

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self._requests: set[str] = set()
        self._lanes: set[int] = set()
        self._left: set[str] = set()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

    def has_lane(self, lane: int) -> bool:
        """Whether a step of running requests of `lane` is on its way."""
        return lane in self._lanes

    def begin(self, step: Step) -> Step:
        """A step sets out."""
        for request in step.requests:
            assert request.request_id not in self._requests, f"{request.request_id} is in two steps"
            self._requests.add(request.request_id)
        if step.running:
            self._lanes.add(step.lane)
        return step

    def end(self, step: Step) -> None:
        """A step is done: requests that have left since it set out give their blocks back."""
        for request in step.requests:
            self._requests.remove(request.request_id)
            if request.request_id in self._left:
                self._left.remove(request.request_id)
                self._blocks.free(request.request_id)
        if step.running:
            self._lanes.remove(step.lane)

    def free(self, request_id: str) -> None:
        """Free the blocks of a request that leaves, when it is in a step on its way then at the end of that."""
        if request_id in self._requests:
            self._left.add(request_id)
        else:
            self._blocks.free(request_id)
