"""An answer of the search as `status.plan`: whole numbers and texts only, what is not known or not finite is absent."""

import math
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any, Final

from distserve_operator.observed.recorded import PlanOutcome
from distserve_operator.placement.answer import Candidate, KvMove, Percentiles, Plan, Served
from distserve_operator.placement.shape import Colocated, Pool

Fields = dict[str, Any]
_THREE_DIGITS: Final = Context(prec=3)
_MOST_REASONS: Final = 8


def answer_status(plan: Plan, milliseconds: float, batch_tokens: Mapping[int, int]) -> Fields:
    """The fields that follow from the answer alone.

    `milliseconds` is what it took, `batch_tokens` the new tokens of a prefill batch (L_m) by tensor parallelism.
    """
    found = {
        "outcome": str(_outcome(plan)),
        **({} if plan.chosen is None else _chosen(plan.chosen, batch_tokens)),
        **({} if plan.served is None else _served(plan.served)),
        "binding": plan.binding,
        "reasons": list(plan.reasons[:_MOST_REASONS]),
        "kv": None if plan.kv is None else _kv(plan.kv),
        "runnerUp": None if plan.runner_up is None else _runner_up(plan.runner_up, plan.runner_up_lost),
        "candidates": {"evaluated": plan.counted.evaluated, "pruned": plan.counted.pruned},
        "searchMilliseconds": math.ceil(milliseconds),
        "latencySource": plan.source,
    }
    return _given(found)


def refusal_status(outcome: PlanOutcome, binding: str) -> Fields:
    """The answer where there is nothing to search."""
    return {"outcome": str(outcome), "binding": binding}


def three_digits(number: float) -> str | None:
    """A number with three significant digits, never with an exponent; None when it is not finite."""
    if not math.isfinite(number):
        return None
    return f"{_THREE_DIGITS.create_decimal(Decimal(number)):f}"


def _outcome(plan: Plan) -> PlanOutcome:
    if plan.feasible:
        return PlanOutcome.FEASIBLE
    if plan.chosen is None:
        return PlanOutcome.DOES_NOT_FIT
    return PlanOutcome.RATE_UNREACHABLE if plan.chosen.goodput > 0 else PlanOutcome.SLO_UNREACHABLE


def _chosen(candidate: Candidate, batch_tokens: Mapping[int, int]) -> Fields:
    placement = candidate.placement
    goodput = {
        "shape": str(placement),
        "devices": placement.devices,
        "goodput": three_digits(candidate.goodput),
        "goodputPerDevice": three_digits(candidate.per_device),
    }
    if isinstance(placement, Colocated):
        pool, chunk = placement.pool, placement.chunk
        step = {"maxBatchTokens": batch_tokens[pool.shape.tp]} if chunk is None else {"chunkTokens": chunk}
        return goodput | {"colocated": _pool(pool) | step}
    step = {"maxBatchTokens": batch_tokens[placement.prefill.shape.tp]}
    roles = {"prefill": _pool(placement.prefill) | step, "decode": _pool(placement.decode)}
    return goodput | roles | {"segments": placement.segments}


def _served(served: Served) -> Fields:
    """Attainment is rounded down: 89.9 % is not 90 %."""
    p90 = {"ttftMilliseconds": _p90(served.ttft), "tpotMilliseconds": _p90(served.tpot)}
    return {"attainmentPercent": math.floor(100 * served.attainment + 1e-9), "p90": _given(p90)}


def _p90(seconds: Percentiles | None) -> str | None:
    return None if seconds is None else three_digits(1e3 * seconds.p90)


def _kv(move: KvMove) -> Fields:
    milliseconds = three_digits(1e3 * move.seconds)
    return {"bytes": round(move.bytes), "milliseconds": milliseconds, "link": move.link.capitalize()}


def _runner_up(candidate: Candidate, lost: str) -> Fields:
    return {
        "shape": str(candidate.placement),
        "devices": candidate.placement.devices,
        "goodputPerDevice": three_digits(candidate.per_device),
        "lost": lost,
    }


def _pool(pool: Pool) -> Fields:
    return {"tp": pool.shape.tp, "pp": pool.shape.pp, "replicas": pool.replicas}


def _given(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}
