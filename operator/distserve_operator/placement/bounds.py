"""Upper bounds of a placement's steady goodput, without simulation.

All follow from work that cannot be avoided: prompts have a price per token, every decode step has a fixed part that
only the requests of its batch share, a step as long as the TPOT target bounds that batch, and so does the KV memory.
Requests that may miss their targets (1 - attainment of all) are taken to be those that help most: they hold the largest
share of the tokens and are served at full throughput, without a target.

From each bound a little is taken: so near to it a fleet takes longer to settle than any run lasts, and stays well for
hundreds of thousands of requests by chance.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from distserve_operator.placement.simulation.block_size import BLOCK_TOKENS
from distserve_operator.placement.simulation.state import (
    DecodeRules,
    Floats,
    LinkRules,
    MixedRules,
    PrefillRules,
    Table,
)
from distserve_operator.placement.workload.path import Path

# Where so many decode at once, hardly ever nobody does, and prompts delay somebody's next token: at least this share.
CROWDED: Final = 4.0
INTERLEAVED: Final = 0.95
# Share of its KV memory, and of its seats, that an instance may have taken in the mean: the need for it varies.
FILLED: Final = 0.92
JUDGED: Final = 80_000  # requests that verification judges; a queue has to forget a few times in them what it was
FORGOTTEN: Final = 16.0


@dataclass(frozen=True, slots=True)
class Demand:
    """Means over requests of a workload. `late_share` is the share of decode tokens that may miss the TPOT target."""

    path: Path
    prompt: float  # tokens
    squared: float
    steps: float  # decode steps: output tokens less the first
    contexts: float  # sum over its steps of the tokens of context
    whole: float  # token-steps of KV memory per decode token: mean context of a running request
    late_share: float
    moving: float  # share of the requests whose KV moves: those with more than one output token
    moved: float  # tokens of KV that a request moves
    lasting: float  # decode steps of the mean request that runs at a moment; long ones are met more often
    burstiness: float  # squared coefficient of variation of the times between arrivals
    covariance: Table  # of (prompt, squared, contexts, steps) over requests

    def settled(self, *work: float) -> float:
        """Share of its capacity at which a server settles in the judged requests.

        `work`: what a request costs it for each of prompt, squared, contexts and steps. At a utilisation u a queue
        forgets what it was in about (variation of arrivals + that of work) / (1 - u)^2 requests.
        """
        weights = np.array(work)
        mean = float(weights @ (self.prompt, self.squared, self.contexts, self.steps))
        variation = float(weights @ self.covariance @ weights) / mean**2 if mean > 0 else 0.0
        return max(0.5, 1 - math.sqrt(FORGOTTEN * (self.burstiness + variation) / JUDGED))

    def at(self, attainment: float) -> "Demand":
        """The same demand where another share of the requests has to meet the targets."""
        return replace(self, late_share=_late_share(self.path, attainment))


def demand_of(path: Path, attainment: float) -> Demand:
    """The means of a sample path."""
    prompt, steps = path.prompts.astype(float), path.outputs.astype(float) - 1
    contexts = steps * prompt + steps * (steps + 1) / 2
    total = max(float(steps.sum()), 1.0)
    return Demand(
        path,
        float(prompt.mean()),
        float((prompt**2).mean()),
        float(steps.mean()),
        float(contexts.mean()),
        float(contexts.sum()) / total,
        _late_share(path, attainment),
        float((steps > 0).mean()),
        float((prompt * (steps > 0)).mean()),
        float((steps**2).sum()) / total,
        _variation(np.diff(path.arrivals)),
        np.cov(np.stack([prompt, prompt**2, contexts, steps]), bias=True),
    )


def _late_share(path: Path, attainment: float) -> float:
    steps = np.sort(path.outputs) - 1
    late = math.ceil(len(steps) * (1 - attainment))
    return float(steps[len(steps) - late :].sum() / max(steps.sum(), 1))


def _variation(values: Floats) -> float:
    """Squared coefficient of variation; 0 of none."""
    return float(values.var() / values.mean() ** 2) if len(values) and values.mean() > 0 else 0.0


def prefill_rate(rules: PrefillRules, demand: Demand) -> float:
    """Requests per second that prefill instances can read at most."""
    batches = max(1 / rules.requests, float(np.minimum(demand.path.prompts, rules.tokens).mean()) / rules.tokens)
    stage = max(p[0] * batches + p[1] * demand.prompt + p[2] * demand.squared for p in rules.planes) / rules.pp
    widest = max(rules.planes, key=lambda p: float(p[1] * demand.prompt + p[2] * demand.squared))
    return float(rules.instances * demand.settled(widest[1], widest[2], 0.0, 0.0) / (stage + rules.hop * batches))


def decode_rate(rules: DecodeRules, demand: Demand, tpot: float) -> float:
    """Requests per second that decode instances can carry at most with a mean step of `tpot` seconds."""
    if demand.steps == 0:
        return float("inf")
    most = FILLED * largest_batch(rules, demand)
    free = _tokens_per_second(rules, demand, most)
    bounded = _tokens_per_second(rules, demand, min(most, _batch_within(rules.planes, demand, tpot) * rules.pp))
    if bounded <= 0:
        return 0.0 if demand.late_share == 0 else rules.instances * free / demand.late_share / demand.steps
    per_token = (1 - demand.late_share) / bounded + demand.late_share / free
    settled = min(demand.settled(0.0, 0.0, p[1], p[2] + p[0] * rules.pp / most) for p in rules.planes)
    return float(rules.instances * settled / per_token / demand.steps)


def mixed_rate(prompts: MixedRules, rules: DecodeRules, demand: Demand, tpot: float) -> float:
    """Requests per second that colocated instances can carry at most with a mean step of `tpot` seconds.

    Each takes the work of its prompt and of its decode tokens, and its share of the fixed part of as many steps as it
    has. A step makes way for the prompts that come while it runs, so with its fixed part a and the work w of a request
    it takes a / (1 - R w) at a rate R.
    """
    hidden = 1 - prompts.overlap if prompts.chunked else 1.0
    widest = max(prompts.planes, key=lambda p: float(p[1] * demand.prompt + p[2] * demand.squared))
    per_token, per_square = (max(0.0, hidden) * widest[column] / rules.pp for column in (1, 2))
    reading = per_token * demand.prompt + per_square * demand.squared
    most = max(FILLED * largest_batch(rules, demand), 1.0)
    slowest = 0.0
    for fixed, per_context, per_request in rules.planes:
        work = reading + (per_context * demand.contexts + per_request * demand.steps) / rules.pp
        free = work + fixed * demand.steps / most
        in_time = INTERLEAVED * work / (1 - fixed / tpot) if fixed < tpot else float("inf")
        crowded = tpot * demand.steps >= CROWDED * in_time
        late = demand.late_share
        settled = demand.settled(per_token, per_square, per_context / rules.pp, per_request / rules.pp + fixed / most)
        slowest = max(slowest, (late * free + (1 - late) * max(free, in_time) if crowded else free) / settled)
    return float(rules.instances / slowest) if slowest > 0 else float("inf")


def link_rate(link: LinkRules, prefill: int, decode: int, demand: Demand) -> float:
    """Requests per second whose KV the links can carry; each end has one."""
    seconds = link.latency * demand.moving + link.per_token * demand.moved
    return min(prefill, decode) / seconds if seconds > 0 else float("inf")


def in_flight(rules: DecodeRules, demand: Demand, rate: float) -> float:
    """Requests that run at a moment, were their number constant (Little's law); no more than memory holds.

    At a rate R of one instance a step lasts `a / (1 - R c)`: a its fixed part, c the work of a request's decode tokens.
    Independent of any target.
    """
    one = rate / max(rules.instances, 1)
    most = largest_batch(rules, demand)
    step = 0.0
    for fixed, per_context, per_request in rules.planes:
        work = (per_context * demand.contexts + per_request * demand.steps) / rules.pp
        step = max(step, fixed / max(1 - one * work, fixed / 10.0))
    return float(rules.instances * min(most, one * demand.lasting * step))


def largest_batch(rules: DecodeRules, demand: Demand) -> float:
    """Requests that one instance can hold at once, at the mean context."""
    return min(rules.requests, rules.blocks * BLOCK_TOKENS / max(demand.whole, 1.0))


def step_seconds(rules: DecodeRules, demand: Demand, batch: float) -> float:
    """Seconds of a step of so many requests at the mean context, in micro-batches of equal size."""
    lane = batch / rules.pp
    return float(max(p[0] + lane * (p[1] * demand.whole + p[2]) for p in rules.planes))


def _batch_within(planes: Table, demand: Demand, seconds: float) -> float:
    """The largest micro-batch whose step takes no more than `seconds`."""
    return float(min((seconds - p[0]) / max(p[1] * demand.whole + p[2], 1e-12) for p in planes))


def _tokens_per_second(rules: DecodeRules, demand: Demand, batch: float) -> float:
    return 0.0 if batch <= 0 else float(batch / step_seconds(rules, demand, batch))
