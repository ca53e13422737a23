"""One simulation run: rules and a sample path in, what every request saw out."""

from dataclasses import dataclass

import numpy as np

from distserve_operator.placement.simulation import colocated, disaggregated
from distserve_operator.placement.simulation.state import (
    CLEAR,
    FAILED,
    FAILED_TPOT,
    KNOWN,
    KNOWN_MISSED,
    LEFT,
    PUT_BACK,
    TOO_MANY,
    DecodeRules,
    Floats,
    MixedRules,
    Requests,
    SplitRules,
    SplitState,
    Targets,
    Totals,
    fresh_decode,
    fresh_prefill,
    fresh_requests,
    fresh_totals,
)
from distserve_operator.placement.workload.path import Path


@dataclass(frozen=True, slots=True)
class Mixed:
    """A fleet whose instances serve both phases."""

    prompts: MixedRules
    decode: DecodeRules


Fleet = SplitRules | Mixed


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of each judged request, infinite where it got none; `failed` says that too many missed their targets.

    A run that ended early, because it was clear how it ends, has infinite times for the requests it did not get to.
    """

    ttft: Floats
    tpot: Floats
    gap: Floats
    failed: bool
    missed: float  # share of the requests known when the run ended that had failed
    put_back: int  # times that a running request gave its blocks back
    growth: float  # seconds a second by which waiting grew; 0 of a run that ended early
    slowing: (
        float  # share by which the time per token grew from the first third of the requests to the last; 0 as above
    )


def simulate(fleet: Fleet, path: Path, rate: float, targets: Targets) -> Outcome:
    """Simulate requests at `rate` per second; stops early when more than `targets.failures` have failed."""
    requests = fresh_requests(path.at(rate), path.prompts, path.outputs)
    totals = fresh_totals(targets.stop - targets.start)
    _run(fleet, targets, requests, totals)
    worst = int(max(totals.counts[FAILED], totals.counts[FAILED_TPOT]))
    judged = slice(targets.start, targets.stop)
    complete = totals.counts[LEFT] == 0
    return Outcome(
        requests.ttft[judged],
        requests.tpot[judged],
        requests.gap[judged],
        worst > targets.failures or totals.counts[CLEAR] == TOO_MANY,
        _missed(targets, totals),
        int(totals.counts[PUT_BACK]),
        _growth(requests, judged) if complete else 0.0,
        _slowing(requests.tpot[judged]) if complete else 0.0,
    )


def _missed(targets: Targets, totals: Totals) -> float:
    """Share of the requests that missed, of those whose fate is known up to the first unknown one."""
    if totals.counts[LEFT] == 0:
        return float(max(totals.counts[FAILED], totals.counts[FAILED_TPOT]) / max(1, targets.stop - targets.start))
    return float(totals.counts[KNOWN_MISSED] / max(1, totals.counts[KNOWN]))


def _growth(requests: Requests, judged: slice) -> float:
    """From the first third of the judged requests to the last: of a fleet that is too small it is as much too small."""
    waited = requests.ttft[judged] + requests.waited[judged]
    third = len(waited) // 3
    if third == 0:
        return 0.0
    arrival = requests.arrival[judged]
    served = np.where(np.isfinite(waited), waited, 0.0)
    span = arrival[-third:].mean() - arrival[:third].mean()
    return float((served[-third:].mean() - served[:third].mean()) / span) if span > 0 else 0.0


def _slowing(tpot: Floats) -> float:
    """A fleet that fills up hands out tokens ever more slowly, long before anybody waits."""
    third = len(tpot) // 3
    first, last = (part[(part > 0) & np.isfinite(part)] for part in (tpot[:third], tpot[-third:]))
    return float(last.mean() / first.mean() - 1) if third and len(first) and len(last) else 0.0


def _run(fleet: Fleet, targets: Targets, requests: Requests, totals: Totals) -> None:
    decode = fresh_decode(fleet.decode, len(requests.arrival))
    if isinstance(fleet, Mixed):
        colocated.run(fleet.prompts, fleet.decode, targets, decode, requests, totals)
        return
    state = SplitState(fresh_prefill(fleet.prefill), decode)
    disaggregated.run(fleet, targets, state, requests, totals)
