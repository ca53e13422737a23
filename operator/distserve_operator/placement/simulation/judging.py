"""Marks what happened to a request against the targets, and counts those that failed."""

from typing import Final

from distserve_operator.placement.simulation.compiling import compiled
from distserve_operator.placement.simulation.state import (
    CLEAR,
    FAILED,
    FAILED_TPOT,
    FEW,
    KNOWN,
    KNOWN_MISSED,
    LEFT,
    MISSED,
    NEVER,
    PASSED,
    STRETCH_MISSED,
    STRETCH_WAITED,
    TOO_MANY,
    UNKNOWN,
    WAITED_BEFORE,
    Requests,
    Targets,
    Totals,
)

CALM: Final = 0.02  # seconds a second by which the mean TTFT may grow from a stretch to the next


@compiled
def judged(targets: Targets, request: int) -> bool:
    """Whether a request lies between warm-up and tail."""
    return targets.start <= request < targets.stop


@compiled
def first_token(requests: Requests, targets: Targets, totals: Totals, request: int, now: float) -> None:
    """A request got its first token."""
    requests.first[request] = requests.last[request] = now
    elsewhere = targets.handling + targets.per_token * requests.prompt[request]
    requests.ttft[request] = now - requests.arrival[request] + elsewhere
    if judged(targets, request) and requests.ttft[request] > targets.ttft:
        totals.counts[FAILED] += 1
        _learn(requests, targets, totals, request, MISSED)


@compiled
def last_token(requests: Requests, targets: Targets, totals: Totals, request: int, now: float) -> None:
    """A request is done."""
    later = requests.output[request] - 1
    requests.tpot[request] = (now - requests.first[request]) / later if later > 0 else 0.0
    if judged(targets, request):
        totals.counts[LEFT] -= 1
        late = requests.tpot[request] > targets.tpot or requests.gap[request] > targets.gap
        if late and not targets.joint:
            totals.counts[FAILED_TPOT] += 1
        if requests.ttft[request] <= targets.ttft:
            if late and targets.joint:
                totals.counts[FAILED] += 1
            _learn(requests, targets, totals, request, MISSED if late else PASSED)


@compiled
def _learn(requests: Requests, targets: Targets, totals: Totals, request: int, fate: int) -> None:
    """One more request is known to miss or to pass.

    Requests count in order of arrival, up to the first one that is not known: those that end soon are not like the
    others.
    """
    requests.fate[request] = fate
    place = targets.start + totals.counts[KNOWN]
    while place < targets.stop and requests.fate[place] != UNKNOWN:
        missed = requests.fate[place] == MISSED
        totals.counts[KNOWN] += 1
        totals.counts[KNOWN_MISSED] += missed
        totals.counts[STRETCH_MISSED] += missed
        totals.sums[STRETCH_WAITED] += requests.ttft[place]
        if targets.stretch > 0 and totals.counts[KNOWN] % targets.stretch == 0:
            _look_back(requests, targets, totals, place)
        place += 1


@compiled
def _look_back(requests: Requests, targets: Targets, totals: Totals, last: int) -> None:
    """The end of a stretch, in which requests share their fate: was it far on one side of the share that may fail?

    Few failures say nothing while the queue grows: with a loose target it is met for long by a fleet that is too small.
    """
    share = totals.counts[STRETCH_MISSED] / targets.stretch
    totals.counts[STRETCH_MISSED] = 0
    calm = _grew_little(requests, targets, totals, last)
    if totals.counts[CLEAR] in (FEW, TOO_MANY):
        return
    if calm and share <= targets.share / 4:
        totals.counts[CLEAR] = max(0, totals.counts[CLEAR]) + 1
    elif share >= (1 + 3 * targets.share) / 4:
        totals.counts[CLEAR] = min(0, totals.counts[CLEAR]) - 1
    else:
        totals.counts[CLEAR] = 0


@compiled
def _grew_little(requests: Requests, targets: Targets, totals: Totals, last: int) -> bool:
    """Whether TTFT is about what it was in the stretch before; so it was of the first one."""
    waited = totals.sums[STRETCH_WAITED] / targets.stretch
    grown = waited - totals.sums[WAITED_BEFORE]
    totals.sums[STRETCH_WAITED] = 0.0
    totals.sums[WAITED_BEFORE] = waited
    span = requests.arrival[last] - requests.arrival[max(0, last - targets.stretch)]
    return bool(grown <= CALM * span)


@compiled
def refused(requests: Requests, targets: Targets, totals: Totals, request: int) -> None:
    """A request that no instance can hold: it has failed all targets."""
    requests.ttft[request] = NEVER
    requests.tpot[request] = NEVER
    if judged(targets, request):
        totals.counts[LEFT] -= 1
        totals.counts[FAILED] += 1
        totals.counts[FAILED_TPOT] += 1
        _learn(requests, targets, totals, request, MISSED)


@compiled
def decided(targets: Targets, totals: Totals) -> bool:
    """Whether every judged request is done, too many have failed, or it is clear how it ends."""
    worst = max(totals.counts[FAILED], totals.counts[FAILED_TPOT])
    return bool(totals.counts[LEFT] == 0 or worst > targets.failures or totals.counts[CLEAR] in (FEW, TOO_MANY))
