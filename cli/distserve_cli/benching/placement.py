"""Runs the placement benchmarks: CPU time of the search, and devices that the joint rule saves."""

import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from distserve_cli.benching.cases import Case, savings_cases, speed_cases
from distserve_cli.benching.machine import machine_with
from distserve_operator.placement.answer import Plan
from distserve_operator.placement.question import Question
from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.simulation.loading import load

Row = dict[str, Any]
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Timed:
    """A plan and the CPU seconds that finding it took, each time."""

    plan: Plan
    seconds: list[float]


def bench_speed() -> Row:
    """CPU seconds of each search, the least of some; ratios to the published code where there are figures of it."""
    load()
    rows = [_speed_row(case) for case in speed_cases()]
    return {
        "rows": rows,
        "peakMebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        **machine_with("numba", "numpy"),
    }


def bench_savings() -> Row:
    """Devices that a rate needs: by the joint rule, by the paper's, and colocated."""
    load()
    rows = [_savings_row(case) for case in savings_cases()]
    return {"rows": rows, "meanSaving": mean_saving(rows), **machine_with("numba", "numpy")}


def mean_saving(rows: Sequence[Row]) -> float | None:
    """Share of the paper's devices that the joint rule does without, over the rates that the fleets of both hold."""
    held = [(row["joint"], row["paper"]) for row in rows if row["joint"]["holds"] and row["paper"]["holds"]]
    return statistics.fmean(1 - joint["devices"] / paper["devices"] for joint, paper in held) if held else None


def _speed_row(case: Case) -> Row:
    timed = _timed(case.question, REPEATS)
    chosen, best = timed.plan.chosen, min(timed.seconds)
    return {
        "case": case.name,
        "cpuSeconds": timed.seconds,
        "referenceCpuSeconds": case.reference_seconds,
        "ratio": None if case.reference_seconds is None else case.reference_seconds / best,
        "simulations": timed.plan.counted.simulations,
        "plan": None if chosen is None else str(chosen.placement),
        "feasible": timed.plan.feasible,
    }


def _savings_row(case: Case) -> Row:
    questions = {
        "joint": case.question,
        "paper": replace(case.question, rule="paper"),
        "colocated": replace(case.question, only="colocated"),
    }
    return {"case": case.name, **{name: _devices(question) for name, question in questions.items()}}


def _devices(question: Question) -> Row:
    found = plan(question)
    placement = None if found.chosen is None else found.chosen.placement
    return {
        "devices": None if placement is None else placement.devices,
        "plan": None if placement is None else str(placement),
        "holds": found.feasible,
    }


def _timed(question: Question, times: int) -> Timed:
    seconds = []
    for _ in range(times):
        start = time.process_time()
        found = plan(question)
        seconds.append(time.process_time() - start)
    return Timed(found, seconds)
