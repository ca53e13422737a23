"""Carries out `distserve simulate`: one placement at several rates or on a trace, printed and drawn."""

import json
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from distserve_cli.planning import plotting
from distserve_cli.planning.answering import watched
from distserve_cli.planning.asking import question_of
from distserve_cli.planning.curves import SCALES, SPEEDS, faster, scaled, telling_rate
from distserve_cli.planning.errors import BadInput, naming
from distserve_cli.planning.placements import Numbers, alone, colocated, disaggregated, pool_of
from distserve_cli.planning.plotting import Curve
from distserve_cli.planning.rendering import csv_text, served_json
from distserve_cli.planning.tables import print_served
from distserve_cli.planning.wishes import Wishes
from distserve_operator.placement.answer import Served
from distserve_operator.placement.question import Question
from distserve_operator.placement.shape import Placement
from distserve_operator.placement.simulating import PlacementError, simulate
from distserve_operator.placement.workload.reading import read_trace
from distserve_operator.placement.workload.trace import Trace

MOST_NODES = 100_000


@dataclass(frozen=True, slots=True)
class Counts:
    """A placement as given: (tp, pp, replicas) of prefill, decode or both, or of colocated instances."""

    prefill: Numbers | None
    decode: Numbers | None
    colocated: Numbers | None
    chunk_tokens: int | None

    @property
    def stages(self) -> float:
        """Pipeline stages in all: on so many nodes each has one of its own."""
        return sum(given[1] * given[2] for given in (self.prefill, self.decode, self.colocated) if given is not None)


@dataclass(frozen=True, slots=True)
class Bench:
    """A placement and the load that it is simulated under."""

    question: Question
    placement: Placement
    trace: Trace | None

    def at(self, question: Question, place: float) -> Served:
        """Simulate at a rate, or the trace at a multiple of its speed. Raises BadInput."""
        try:
            if self.trace is None:
                (served,) = simulate(question, self.placement, rates=[place])
            else:
                (served,) = simulate(question, self.placement, trace=faster(self.trace, place))
        except PlacementError as error:
            raise BadInput(f"{self.placement} cannot be: {error}") from error
        return served


def run_simulation(
    wishes: Wishes,
    counts: Counts,
    rates: Sequence[float] | None,
    trace: pathlib.Path | None,
    plot: pathlib.Path | None,
    output: str,
) -> None:
    """Print attainment and latencies as `output`: table, json or csv. Raises BadInput."""
    if plot is not None:
        plotting.check_target(plot)
    bench = _bench(wishes, counts, trace)
    served = _run(bench, rates or [1.0])
    rows = [{**served_json(one), "steady": one.steady} for one in served]
    match output:
        case "json":
            click.echo(json.dumps(rows, indent=2, allow_nan=False))
        case "csv":
            click.echo(csv_text(rows), nl=False)
        case _:
            print_served(f"{bench.placement}: {bench.question.model.name} on {bench.question.device.name}", rows)
    if plot is not None:
        _plot(bench, served, plot)


def _bench(wishes: Wishes, counts: Counts, trace: pathlib.Path | None) -> Bench:
    recorded = None
    if trace is not None:
        with naming("--trace"):
            recorded = read_trace(trace)
    if wishes.nodes is None and wishes.max_devices is None:
        wishes = replace(wishes, nodes=min(int(counts.stages), MOST_NODES))
    question = question_of(wishes, recorded, str(trace))
    return Bench(question, _placement(question, counts), recorded)


def _placement(question: Question, counts: Counts) -> Placement:
    if counts.colocated is not None:
        return colocated(question, pool_of(counts.colocated), counts.chunk_tokens)
    prefill = None if counts.prefill is None else pool_of(counts.prefill)
    decode = None if counts.decode is None else pool_of(counts.decode)
    if prefill is None or decode is None:
        return alone(question, prefill, decode)
    return disaggregated(question, prefill, decode)


def _run(bench: Bench, places: Sequence[float]) -> list[Served]:
    return [bench.at(bench.question, place) for place in watched(places, "simulating")]


def _plot(bench: Bench, served: Sequence[Served], path: pathlib.Path) -> None:
    question = bench.question
    if bench.trace is None:
        by_rate = sorted(served, key=lambda one: one.rate)
        place = telling_rate(served, question.slo.attainment)
        fixed = f"{place:g} requests/s"
    else:
        by_rate = _run(bench, SPEEDS)
        place, fixed = 1.0, "the trace"
    by_scale = [bench.at(scaled(question, scale), place) for scale in watched(SCALES, "scaling the targets")]
    rates = Curve("requests per second", [one.rate for one in by_rate], _percent(by_rate))
    scales = Curve(f"scale of the targets, at {fixed}", SCALES, _percent(by_scale))
    title = f"{question.model.name}, {bench.placement}"
    plotting.draw(path, title, 100 * question.slo.attainment, [rates, scales])


def _percent(served: Sequence[Served]) -> list[float]:
    return [100 * one.attainment for one in served]
