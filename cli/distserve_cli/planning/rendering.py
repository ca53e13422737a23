"""Answers as plain data for JSON and YAML: milliseconds, percent, and null for what is unknown or not finite."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from distserve_cli.planning.answer import Answer
from distserve_operator.placement.answer import Candidate, KvMove, Percentiles, Served
from distserve_operator.placement.shape import Disaggregated, Placement, Pool

Json = dict[str, Any]
LATENCIES: Final = ("ttft", "tpot", "gap")
PERCENTILES: Final = ("p50", "p90", "p99")
PLACEMENT_KEYS: Final = ("shape", "prefill", "decode", "colocated", "units", "segments", "devices")
NO_CANDIDATE: Final[Json] = dict.fromkeys((*PLACEMENT_KEYS, "goodput", "goodputPerDevice", "goodputInterval"))


def answer_json(answer: Answer, top: int | None) -> Json:
    """All of a plan; `top` candidates are listed, None: all that were measured."""
    plan = answer.plan
    return {
        "feasible": plan.feasible,
        **(NO_CANDIDATE if plan.chosen is None else candidate(plan.chosen)),
        **served_json(plan.served),
        "kv": _kv(plan.kv),
        "memoryPerDevice": {role: whole(size) for role, size in plan.memory_per_device.items()},
        "binding": plan.binding,
        "reasons": list(plan.reasons),
        "runnerUp": None if plan.runner_up is None else {**candidate(plan.runner_up), "lost": plan.runner_up_lost},
        "alternatives": {
            "disaggregated": _or_null(plan.best_disaggregated),
            "colocated": _or_null(plan.best_colocated),
            "flipOverlap": number(plan.flip_overlap, 3),
            "top": [candidate(one) for one in plan.top[:top]],
        },
        "candidates": {
            "evaluated": plan.counted.evaluated,
            "pruned": plan.counted.pruned,
            "simulations": plan.counted.simulations,
        },
        "searchMilliseconds": number(answer.milliseconds, 1),
        "searchCpuMilliseconds": number(answer.cpu_milliseconds, 1),
        "latencySource": plan.source,
    }


def served_json(served: Served | None) -> Json:
    """What a placement does at one rate."""
    if served is None:
        return dict.fromkeys(("rate", "attainment", *LATENCIES))
    return {
        "rate": number(served.rate, 4),
        "attainment": number(100 * served.attainment, 2),
        "ttft": _percentiles(served.ttft),
        "tpot": _percentiles(served.tpot),
        "gap": _percentiles(served.gap),
    }


def csv_text(rows: Sequence[Json]) -> str:
    """Rows of `served_json` with columns such as ttft_p90; what is not finite is empty."""
    flat = [dict(_flattened(row)) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def candidate(one: Candidate) -> Json:
    """A placement with its goodput."""
    return {
        **placement_json(one.placement),
        "goodput": number(one.goodput, 4),
        "goodputPerDevice": number(one.per_device, 4),
        "goodputInterval": [number(bound, 4) for bound in one.interval],
    }


def placement_json(placement: Placement) -> Json:
    """Shapes and counts; the kind that it is not has null."""
    split = placement if isinstance(placement, Disaggregated) else None
    both = None if isinstance(placement, Disaggregated) else placement
    return {
        "shape": str(placement),
        "prefill": None if split is None else _pool(split.prefill),
        "decode": None if split is None else _pool(split.decode),
        "colocated": None if both is None else {**_pool(both.pool), "chunkTokens": both.chunk},
        "units": None if split is None else split.units,
        "segments": None if split is None else split.segments,
        "devices": placement.devices,
    }


def number(value: float | None, digits: int) -> float | None:
    """A rounded number; null instead of infinity and NaN, which JSON does not have."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def whole(value: float) -> int | None:
    """A whole number, or null."""
    return round(value) if math.isfinite(value) else None


def _or_null(one: Candidate | None) -> Json | None:
    return None if one is None else candidate(one)


def _percentiles(seconds: Percentiles | None) -> Json | None:
    """Milliseconds; null where no request has such a time."""
    if seconds is None:
        return None
    return {each: number(1000 * getattr(seconds, each), 3) for each in PERCENTILES}


def _flattened(row: Json) -> Iterator[tuple[str, float | None]]:
    for name, value in row.items():
        if name in LATENCIES:
            yield from ((f"{name}_{each}", None if value is None else value[each]) for each in PERCENTILES)
        else:
            yield name, value


def _kv(move: KvMove | None) -> Json | None:
    if move is None:
        return None
    return {"bytes": whole(move.bytes), "milliseconds": number(1000 * move.seconds, 3), "link": move.link}


def _pool(pool: Pool) -> Json:
    return {"tp": pool.shape.tp, "pp": pool.shape.pp, "replicas": pool.replicas}
