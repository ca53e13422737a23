"""One decode instance, step by step and request by request: what the compiled simulation must equal."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from distserve_operator.placement.simulation.state import DecodeRules

BLOCK = 16


@dataclass
class _Running:
    number: int
    tokens: int  # of context
    left: int  # steps to go
    lane: int
    since: int  # order of joining
    last: float  # time of its last token
    gap: float = 0.0

    @property
    def blocks(self) -> int:
        return -(-self.tokens // BLOCK)


@dataclass
class Seen:
    """TPOT and longest gap of each request in seconds; how often one was put back."""

    tpot: list[float]
    gap: list[float]
    put_back: int = 0


def decode(rules: DecodeRules, arrivals: Sequence[float], prompts: Sequence[int], outputs: Sequence[int]) -> Seen:
    """Requests that arrive with their first token and are pulled in no time."""
    instance = _Instance(rules, arrivals, prompts, outputs)
    while instance.coming < len(arrivals) or instance.waiting or instance.running:
        instance.boundary()
    return instance.seen


class _Instance:
    def __init__(
        self, rules: DecodeRules, arrivals: Sequence[float], prompts: Sequence[int], outputs: Sequence[int]
    ) -> None:
        self.rules, self.arrivals, self.outputs = rules, arrivals, outputs
        self.fresh = [
            _Running(number, prompt, output - 1, -1, -1, arrivals[number])
            for number, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
        ]
        self.seen = Seen([0.0] * len(arrivals), [0.0] * len(arrivals))
        self.waiting: deque[_Running] = deque()
        self.running: list[_Running] = []
        self.now, self.coming, self.joined = 0.0, 0, 0

    def boundary(self) -> None:
        if not self.waiting and not self.running:
            self.now = max(self.now, self.arrivals[self.coming])
        while self.coming < len(self.arrivals) and self.arrivals[self.coming] <= self.now:
            request = self.fresh[self.coming]
            self.coming += 1
            if request.left > 0:
                self.waiting.append(request)
        self._put_back()
        self._admit()
        self._put_back()
        if self.running:
            self._step()

    def _free(self) -> int:
        return self.rules.blocks - sum(request.blocks for request in self.running)

    def _put_back(self) -> None:
        while len(self.running) > 1 and sum(r.tokens % BLOCK == 0 for r in self.running) > self._free():
            youngest = max(self.running, key=lambda request: request.since)
            self.running.remove(youngest)
            self.waiting.appendleft(youngest)
            self.seen.put_back += 1

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.rules.requests:
            request = self.waiting[0]
            spare = self.rules.spare if self.running else 0
            if -(-(request.tokens + 1) // BLOCK) + spare > self._free():
                return
            self.waiting.popleft()
            sizes = [sum(other.lane == lane for other in self.running) for lane in range(self.rules.pp)]
            request.lane = sizes.index(min(sizes))
            request.since = self.joined
            self.joined += 1
            self.running.append(request)

    def _step(self) -> None:
        lanes = [[r for r in self.running if r.lane == lane] for lane in range(self.rules.pp)]
        self.now += max(
            fixed + per_token * sum(r.tokens + 1 for r in lane) + per_request * len(lane)
            for lane in lanes
            if lane
            for fixed, per_token, per_request in self.rules.planes
        )
        for request in list(self.running):
            request.tokens += 1
            request.left -= 1
            request.gap = max(request.gap, self.now - request.last)
            request.last = self.now
            if request.left == 0:
                self.running.remove(request)
                number = request.number
                self.seen.gap[number] = request.gap
                self.seen.tpot[number] = (self.now - self.arrivals[number]) / (self.outputs[number] - 1)
