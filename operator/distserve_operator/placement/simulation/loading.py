"""Compiles the simulation, or loads it from the cache, before somebody looks at the clock."""

from typing import Final

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

_PLANES: Final = np.array([[0.01, 0.0001, 0.0]])
_ONE_REQUEST: Final = Path(np.zeros(1), np.ones(1, np.int64), np.full(1, 2))
_PREFILL: Final = PrefillRules(planes=_PLANES, instances=1, pp=1, hop=0.0, tokens=16, requests=1, blocks=2)
_MIXED: Final = MixedRules(planes=_PLANES, tokens=16, chunked=False, overlap=0.0, context_seconds=0.0)
_DECODE: Final = DecodeRules(planes=_PLANES, instances=1, pp=1, requests=1, blocks=2, spare=0)
_LINK: Final = LinkRules(latency=0.0, per_token=0.0, blocking=False, units=1)
_FLEETS: Final[tuple[Fleet, ...]] = (SplitRules(_PREFILL, _DECODE, _LINK), Mixed(_MIXED, _DECODE))
_TARGETS: Final = Targets(
    ttft=1.0,
    tpot=1.0,
    gap=1.0,
    handling=0.0,
    per_token=0.0,
    start=0,
    stop=1,
    failures=0,
    share=0.1,
    stretch=0,
    joint=True,
)


def load() -> None:
    """Simulate one request on a fleet of each kind: takes most of a minute without a cache, else half a second."""
    for fleet in _FLEETS:
        simulate(fleet, _ONE_REQUEST, 1.0, _TARGETS)
