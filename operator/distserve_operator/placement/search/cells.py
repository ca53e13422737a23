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
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.spaces import shapes
from distserve_operator.placement.shape import Colocated, Placement, Pool, Shape

INSTANCES: Final = 16  # of the smallest shape: a rate that needs more is cut
SEARCHED: Final = 64  # devices that are all searched when there is no rate to hold


def cells_of(question: Question) -> int:
    """Into how many parts the rate is cut; 1 when one cell has devices enough, by the bounds."""
    if question.rate is None or isinstance(question.window, FiniteWindow):
        return 1
    evaluator = Evaluator(question, question.workload.sample(question.seed, question.window.requests))
    best = max((_per_device(evaluator, shape) for shape in shapes(question)), default=0.0)
    return max(1, math.ceil(question.rate / best / (INSTANCES * smallest(question)))) if best > 0 else 1


def one_cell(question: Question, cells: int) -> Question:
    """The question of one cell: its part of the rate, and of the nodes no more than it can use."""
    free = sorted(question.inventory.free, reverse=True)[: max(1, len(question.inventory.free) // cells)]
    most = question.inventory.most // cells
    inventory = bounded(Inventory(tuple(free), most), _room(question))
    rate = None if question.rate is None else question.rate / cells
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
    return Inventory(tuple(kept), min(inventory.most, devices))


def repeated(plan: Plan, cells: int) -> Plan:
    """The plan of a whole fleet of so many cells."""
    if cells == 1:
        return plan
    note = f"{cells} equal parts of {plan.chosen.placement if plan.chosen else 'nothing'} each"
    return replace(
        plan,
        chosen=_candidate(plan.chosen, cells),
        served=_served(plan.served, cells),
        reasons=(*plan.reasons, note),
        runner_up=_candidate(plan.runner_up, cells),
        best_disaggregated=_candidate(plan.best_disaggregated, cells),
        best_colocated=_candidate(plan.best_colocated, cells),
        top=tuple(one for one in (_candidate(candidate, cells) for candidate in plan.top) if one is not None),
    )


def _room(question: Question) -> int:
    """Devices of a cell: with a rate twice what the bounds say, without one all of a small cluster or a part."""
    part = INSTANCES * smallest(question)
    if question.rate is not None:
        return 2 * part
    return SEARCHED if question.inventory.devices <= SEARCHED else part


def _per_device(evaluator: Evaluator, shape: Shape) -> float:
    prefill, decode = evaluator.prefill_upper(shape), evaluator.decode_upper(shape)
    return max(prefill, decode) / shape.devices


def _candidate(candidate: Candidate | None, cells: int) -> Candidate | None:
    if candidate is None:
        return None
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
