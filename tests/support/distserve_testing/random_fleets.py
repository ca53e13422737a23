"""Small random fleets and loads on which every kind of event of the simulation happens.

`python -m distserve_testing.random_fleets` simulates them and prints what each request saw; with NUMBA_DISABLE_JIT=1 in
plain Python, where an index outside an array is an error.
"""

import json
from collections.abc import Iterator

import numpy as np

from distserve_operator.placement.simulation.running import Fleet, Mixed, simulate
from distserve_operator.placement.simulation.state import (
    DecodeRules,
    LinkRules,
    MixedRules,
    PrefillRules,
    SplitRules,
    Targets,
)
from distserve_operator.placement.workload.path import Path

FLEETS = 80
REQUESTS = 60
_PREFILL_PLANES = np.array([[0.01, 1e-4, 1e-9], [0.004, 1.2e-4, 0.0]])
_DECODE_PLANES = np.array([[0.02, 6e-7, 4e-5], [0.007, 5.8e-7, 1.6e-4]])


def outcomes() -> list[list[float]]:
    """For each fleet its put-backs, then TTFT and TPOT of every request; -1 stands for never."""
    found = []
    for fleet, path, targets in fleets():
        seen = simulate(fleet, path, 1.0, targets)
        seconds = np.concatenate([seen.ttft, seen.tpot, seen.gap])
        found.append([float(seen.put_back), *np.where(np.isfinite(seconds), seconds, -1.0).tolist()])
    return found


def fleets() -> Iterator[tuple[Fleet, Path, Targets]]:
    """The same ones every time."""
    for seed in range(FLEETS):
        numbers = np.random.default_rng(seed)
        arrivals = np.cumsum(numbers.exponential(numbers.choice([0.003, 0.03]), REQUESTS))
        path = Path(arrivals, numbers.integers(1, 300, REQUESTS), numbers.integers(1, 60, REQUESTS))
        start, stretch = int(numbers.integers(0, 20)), int(numbers.choice([0, 5]))
        targets = Targets(1.0, 0.1, 0.5, 0.0, 0.0, start, REQUESTS - 5, REQUESTS, 0.5, stretch, joint=bool(seed % 5))
        yield _fleet(numbers, mixed=seed % 2 == 0), path, targets


def _fleet(numbers: np.random.Generator, mixed: bool) -> Fleet:
    units = int(numbers.integers(1, 3))
    blocks = int(numbers.choice([26, 40, 400]))
    decode = DecodeRules(
        _DECODE_PLANES,
        units * int(numbers.integers(1, 4)),
        int(numbers.integers(1, 4)),
        int(numbers.choice([2, 50])),
        blocks,
        int(numbers.choice([0, 2])),
    )
    if mixed:
        chunked, tokens = bool(numbers.integers(2)), int(numbers.choice([32, 256]))
        return Mixed(MixedRules(_PREFILL_PLANES, tokens, chunked, 0.2, 1e-8), decode)
    prefill = PrefillRules(
        _PREFILL_PLANES,
        units * int(numbers.integers(1, 3)),
        int(numbers.integers(1, 4)),
        0.001,
        int(numbers.choice([64, 512])),
        int(numbers.choice([1, 8])),
        blocks,
    )
    return SplitRules(prefill, decode, LinkRules(0.001, 1e-5, bool(numbers.integers(2)), units))


if __name__ == "__main__":
    print(json.dumps(outcomes()))
