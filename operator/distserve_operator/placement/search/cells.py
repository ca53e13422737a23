"""Large fleets as equal cells.

Pooling gains nothing beyond some dozens of instances, and a simulation of thousands says no more than one of a part. So
a rate that needs more than a cell's devices is cut into equal parts, each is planned alone, and the fleet is that many
copies. Dispatch over all cells can only be better.
"""

import math
from dataclasses import replace
from typing import Final

from distserve_operator.placement.answer import Candidate, Plan, Served
from distserve_operator.placement.device import Inventory
from distserve_operator.placement.question import FiniteWindow, Question
from distserve_operator.placement.search import explaining
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.spaces import shapes
from distserve_operator.placement.shape import Colocated, Placement, Pool

IN_FLIGHT: Final = 1000  # requests of a cell: what a run of the simulation follows well
INSTANCES: Final = 8  # of the smallest shape, that are searched of a large cluster, at least
SEARCHED: Final = 32  # devices, if no more requests than that are in flight there


def cells_of(question: Question) -> int:
    """Into how many parts the rate is cut, by the requests that would be in flight at once."""
    if question.rate is None or isinstance(question.window, FiniteWindow):
        return 1
    return max(1, math.ceil(_in_flight(question, _bounds_of(question), question.rate) / IN_FLIGHT))


def _in_flight(question: Question, evaluator: Evaluator, rate: float) -> float:
    """Requests that run at a moment, were every step as short as can be."""
    steps = [max(plane.fixed for plane in law.decode) + law.host.per_step for law in question.latency.laws.values()]
    return rate * evaluator.demand.lasting * min(steps)


def one_cell(question: Question, cells: int, spare: int = 2) -> Question:
    """The question of one cell: its part of the rate and of the nodes, `spare` times what the bounds say it needs."""
    free = sorted(question.inventory.free, reverse=True)[: max(1, len(question.inventory.free) // cells)]
    most = question.inventory.most // cells
    rate = None if question.rate is None else question.rate / cells
    part = replace(question.inventory, free=tuple(free), most=most)
    inventory = bounded(part, _room(question, rate, spare))
    return replace(question, rate=rate, inventory=inventory)


def smallest(question: Question) -> int:
    """Devices of the smallest instance that fits."""
    return min(shape.devices for shape in shapes(question))


def bounded(inventory: Inventory, devices: int) -> Inventory:
    """The largest nodes that hold so many devices together."""
    kept: list[int] = []
    for free in sorted(inventory.free, reverse=True):
        if sum(kept) >= devices:
            break
        kept.append(free)
    return replace(inventory, free=tuple(kept), most=min(inventory.most, devices))


def repeated(question: Question, plan: Plan, cells: int) -> Plan:
    """The plan of a whole fleet of so many cells."""
    if cells == 1 or plan.chosen is None:
        return plan
    chosen = _candidate(plan.chosen, cells)
    split, both = (_any_candidate(one, cells) for one in (plan.best_disaggregated, plan.best_colocated))
    note = f"{cells} equal parts of {plan.chosen.placement} each"
    return replace(
        plan,
        chosen=chosen,
        served=_served(plan.served, cells),
        binding=f"{plan.binding} (each of {cells} equal parts)",
        reasons=(*explaining.reasons(question, chosen, split, both, plan.feasible), note),
        runner_up=_any_candidate(plan.runner_up, cells),
        best_disaggregated=split,
        best_colocated=both,
        top=tuple(_candidate(candidate, cells) for candidate in plan.top),
    )


def _room(question: Question, rate: float | None, spare: int) -> int:
    """Devices of a cell: by what the bounds say, where there is a rate, and never less than `SEARCHED`."""
    evaluator = _bounds_of(question)
    part = INSTANCES * smallest(question)
    if rate is None:
        return max(part, min(SEARCHED, math.floor(IN_FLIGHT / max(_in_flight_per_device(question, evaluator), 1e-9))))
    part = max(part, SEARCHED)
    pairs = [
        (evaluator.prefill_upper(shape), evaluator.decode_upper(shape), shape.devices) for shape in shapes(question)
    ]
    prefill, decode = max(p / n for p, _, n in pairs), max(d / n for _, d, n in pairs)
    least = rate / prefill + rate / decode if prefill > 0 and decode > 0 else 0.0
    return max(part, math.ceil(spare * least))


def _in_flight_per_device(question: Question, evaluator: Evaluator) -> float:
    """At the highest rate that a device could read prompts and produce tokens at; whatever the targets are."""
    untimed = Evaluator(replace(question, slo=replace(question.slo, tpot=math.inf)), evaluator.path)
    rates = (untimed.upper(Colocated(Pool(shape, 1))) / shape.devices for shape in shapes(question))
    return _in_flight(question, evaluator, max(rates))


def _bounds_of(question: Question) -> Evaluator:
    return Evaluator(question, question.workload.sample(question.seed, question.window.requests))


def _any_candidate(candidate: Candidate | None, cells: int) -> Candidate | None:
    return None if candidate is None else _candidate(candidate, cells)


def _candidate(candidate: Candidate, cells: int) -> Candidate:
    low, high = candidate.interval
    return Candidate(_times(candidate.placement, cells), candidate.goodput * cells, (low * cells, high * cells))


def _served(served: Served | None, cells: int) -> Served | None:
    return None if served is None else replace(served, rate=served.rate * cells)


def _times(placement: Placement, cells: int) -> Placement:
    if isinstance(placement, Colocated):
        return replace(placement, pool=_pool(placement.pool, cells))
    prefill, decode = _pool(placement.prefill, cells), _pool(placement.decode, cells)
    return replace(placement, prefill=prefill, decode=decode, units=placement.units * cells)


def _pool(pool: Pool, cells: int) -> Pool:
    return Pool(pool.shape, pool.replicas * cells)
