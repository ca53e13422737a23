"""Large fleets as equal cells.

Pooling gains nothing beyond some dozens of instances, and a simulation of thousands says no more than one of a part. So
a rate that needs more than a cell's devices is cut into equal parts, one is planned alone, and the fleet is as many
copies as the rate takes. Dispatch over all cells can only be better.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from distserve_operator.placement.answer import Candidate, Plan, Served
from distserve_operator.placement.device import Inventory
from distserve_operator.placement.question import FiniteWindow, Question
from distserve_operator.placement.search import explaining
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.spaces import CHUNKS, fits, shapes
from distserve_operator.placement.serving import link_of
from distserve_operator.placement.shape import Colocated, Placement, Pool

IN_FLIGHT: Final = 1000  # requests of a cell where no rate is asked for: what a run of the simulation follows well
CROWD: Final = 1250  # the same of a part of a rate: larger ones round less
POOLED: Final = 128  # instances of a cell, as the bounds count them: more hardly gain by pooling
INSTANCES: Final = 8  # of the smallest shape, that any cell has
SAMPLED: Final = 32  # devices of a cell that shows what a device can hold, or has a rate, at least
SEARCHED: Final = 128  # devices among which the best is looked for, at most: wide instances gain by pooling too


def per_device(question: Question) -> float:
    """Goodput per device that no fleet exceeds."""
    if isinstance(question.window, FiniteWindow):
        return math.inf  # a short burst may exceed every sustained rate
    evaluator, fitting = _bounds_of(question), shapes(question)
    split = 0.0 if question.only == "colocated" else 1 / max(_least_devices(question, evaluator, 1.0), 1e-12)
    fleets = [Colocated(Pool(shape, 1), chunk) for shape in fitting for chunk in CHUNKS]
    both = max(evaluator.upper(fleet) / fleet.devices for fleet in fleets) if question.only != "disaggregated" else 0.0
    return max(split, both)


def cells_of(question: Question) -> int:
    """Into how many parts the rate is cut, by the requests that would be in flight at once and by the instances."""
    if question.rate is None or isinstance(question.window, FiniteWindow):
        return 1
    evaluator = _bounds_of(question)
    running = _in_flight(question, evaluator, question.rate) / CROWD
    least = _least_devices(question, evaluator, question.rate)
    instances = 0.0 if math.isinf(least) else least / smallest(question) / POOLED
    return max(1, math.floor(max(running, instances)))


def _in_flight(question: Question, evaluator: Evaluator, rate: float) -> float:
    """Requests that run at a moment, were every step as short as can be; none where none decodes, at whatever rate."""
    if evaluator.demand.lasting == 0:
        return 0.0
    steps = [max(plane.fixed for plane in law.decode) + law.host.per_step for law in question.latency.laws.values()]
    return rate * evaluator.demand.lasting * min(steps)


def divided(question: Question, cells: int) -> tuple[int, Question]:
    """The question of one of so many cells, fewer where every device may be needed or cells were tiny; their number."""
    most = question.inventory.devices // (INSTANCES * smallest(question))
    wanted = max(1, min(cells, most))
    exact, some = _one_of(question, *parts(question.inventory, wanted, exact=True))
    if narrowed(some).inventory.devices < some.inventory.devices:
        return exact, some
    return _one_of(question, *parts(question.inventory, wanted, exact=False))


def _one_of(question: Question, number: int, part: Inventory) -> tuple[int, Question]:
    rate = None if question.rate is None else question.rate / number
    return number, replace(question, rate=rate, inventory=part)


def all_in_cells(question: Question, most: int) -> tuple[int, Question]:
    """All devices in cells such as are searched where no rate is asked for: their number and the question of one."""
    room = without_rate(question, most).inventory.devices
    return _one_of(question, *parts(question.inventory, question.inventory.devices // room, exact=False))


def parts(inventory: Inventory, cells: int, exact: bool) -> tuple[int, Inventory]:
    """Equal parts of the nodes that leave the fewest devices out: their number and one of them.

    Every part can have what the one that is returned has, links too: it is whole nodes or, of more parts than nodes, a
    piece of one node, as two pieces would share its network link. `exact`: so many of whole nodes if there are enough;
    else fewer if these leave less out.
    """
    nodes = sorted((devices for devices in inventory.free if devices > 0), reverse=True)
    found = _pieces(nodes, cells) if cells > len(nodes) else _groups(nodes, cells, exact)
    number, free = max(found, key=lambda one: (one[0] * sum(one[1]), one[0]))
    return number, replace(inventory, free=free, most=inventory.most // number)


_Parts = tuple[int, tuple[int, ...]]  # number of parts, nodes of one


def _pieces(nodes: Sequence[int], cells: int) -> Iterator[_Parts]:
    """Nodes cut into pieces of each size that makes more than half as many as asked for."""
    for size in range(1, nodes[0] + 1):
        number = min(cells, sum(devices // size for devices in nodes))
        if 2 * number > min(cells, sum(nodes)):
            yield number, (size,)


def _groups(nodes: Sequence[int], cells: int, exact: bool) -> Iterator[_Parts]:
    """Nodes of each size or more, the largest first, dealt out to parts."""
    for size in set(nodes):
        wide = [devices for devices in nodes if devices >= size]
        number = min(cells, len(wide)) if exact else len(wide) // math.ceil(len(wide) / cells)
        yield number, tuple(wide[number - 1 :: number])


def narrowed(cell: Question, spare: int = 2) -> Question:
    """The question about the largest nodes of a cell alone, with `spare` times the devices that the bounds call for."""
    least = math.inf if cell.rate is None else _least_devices(cell, _bounds_of(cell), cell.rate)
    devices = _part(cell, SAMPLED if math.isinf(least) else max(SAMPLED, math.ceil(spare * least)))
    return replace(cell, inventory=bounded(cell.inventory, devices))


def without_rate(question: Question, most: int) -> Question:
    """The question without its rate, of `most` devices; of fewer where a run cannot follow the requests in flight."""
    evaluator = _bounds_of(question)
    followed = math.floor(IN_FLIGHT / max(_in_flight_per_device(question, evaluator), 1e-9))
    devices = _part(question, min(most, followed))
    return replace(question, rate=None, inventory=bounded(question.inventory, devices))


def _part(question: Question, devices: int) -> int:
    """So many devices, or as many as a few of the smallest instances take."""
    return max(devices, INSTANCES * smallest(question))


def smallest(question: Question) -> int:
    """Devices of the smallest instance that fits."""
    return min(shape.devices for shape in shapes(question))


def bounded(inventory: Inventory, devices: int) -> Inventory:
    """The largest nodes that hold so many devices together."""
    nodes = sorted(inventory.free, reverse=True)
    kept = 0
    while kept < len(nodes) and sum(nodes[:kept]) < devices:
        kept += 1
    left_out = (*inventory.beyond, *nodes[kept:])
    return replace(inventory, free=tuple(nodes[:kept]), most=min(inventory.most, devices), beyond=left_out)


def copies(rate: float, goodput: float) -> int:
    """How many cells of a goodput a rate takes; a rate that was divided by a number takes no more than that."""
    return max(1, math.ceil(rate / goodput * (1 - 1e-9)))


def repeated(question: Question, plan: Plan, cells: int) -> Plan:
    """The plan of a whole fleet of so many cells; what holds nothing stays as it is.

    Other candidates come in as many cells of theirs as the rate takes, or as there is room for.
    """
    if cells == 1 or plan.chosen is None or plan.chosen.goodput == 0:
        return plan
    chosen, served = _candidate(plan.chosen, cells), _served(plan.served, cells)
    rate = question.rate if plan.feasible else None
    others = [_candidate(one, cells if rate is None else _number(question, one, rate)) for one in plan.top[1:]]
    if rate is not None:
        chosen, served = chosen.at_least(rate), None if served is None else replace(served, rate=rate)
    return explaining.explain_copies(question, plan, chosen, others, served, cells)


def have_room(question: Question, cell: Question, placement: Placement, cells: int) -> bool:
    """Whether the nodes have room for so many cells, and links no slower than each was planned with alone."""
    fleet = _times(placement, cells)
    if not fits(fleet, question.inventory):
        return False
    if isinstance(fleet, Colocated) or isinstance(placement, Colocated):
        return True
    least = link_of(cell, placement).bytes_per_second * (1 - 1e-9)
    return link_of(question, fleet).bytes_per_second >= least


def _number(question: Question, candidate: Candidate, rate: float) -> int:
    number = min(copies(rate, candidate.goodput), question.inventory.devices // candidate.placement.devices)
    while number > 1 and not fits(_times(candidate.placement, number), question.inventory):
        number -= 1
    return max(1, number)


def _least_devices(question: Question, evaluator: Evaluator, rate: float) -> float:
    """Devices without which no disaggregated fleet holds a rate; inf: with none."""
    fitting = shapes(question)
    prefill = max(evaluator.prefill_upper(shape) / shape.devices for shape in fitting)
    decode = max(evaluator.decode_upper(shape) / shape.devices for shape in fitting)
    return rate / prefill + rate / decode if prefill > 0 and decode > 0 else math.inf


def _in_flight_per_device(question: Question, evaluator: Evaluator) -> float:
    """At the highest rate that a device could read prompts and produce tokens at; whatever the targets are."""
    untimed = Evaluator(replace(question, slo=replace(question.slo, tpot=math.inf)), evaluator.path)
    rates = (untimed.upper(Colocated(Pool(shape, 1))) / shape.devices for shape in shapes(question))
    return _in_flight(question, evaluator, max(rates))


def _bounds_of(question: Question) -> Evaluator:
    return Evaluator(question, question.workload.sample(question.seed, question.window.requests))


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
