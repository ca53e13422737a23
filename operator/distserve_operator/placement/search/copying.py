"""Fleets for a rate: the fewest devices that hold it, or copies of a part of it where that takes many."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from distserve_operator.placement.answer import Plan
from distserve_operator.placement.question import Question
from distserve_operator.placement.rates import PER_DEVICE, STEP, Ladder
from distserve_operator.placement.search.cells import (
    SAMPLED,
    SEARCHED,
    all_in_cells,
    bounded,
    copies,
    divided,
    have_room,
    narrowed,
    repeated,
    without_rate,
)
from distserve_operator.placement.search.racing import Winner
from distserve_operator.placement.search.searching import Search, best, fewest, search_of
from distserve_operator.placement.search.telling import candidates, explained, plan_of
from distserve_operator.placement.shape import Colocated, Placement
from distserve_operator.placement.workload.path import Path

SPARE: Final = (2, 4)  # times the devices that the bounds call for; more where fewer did not do
POOLED: Final = 32  # instances of a part that is as large as what the best per device holds calls for
GAINED: Final = 1.25  # times what the best per device holds, that other fleets may hold on as many devices
POOLING: Final = 2.0  # the same of large pools, beside the best of few devices


def of_copies(question: Question, path: Path, rate: float, cells: int) -> Plan:
    """Copies of the fleet with the fewest devices for one of so many parts of the rate, or of the best per device.

    What is copied depends on the number of nodes by nothing but the network links that instances share, so more of them
    hardly ever call for more devices. Where they have no room for it, whatever fits is looked for.
    """
    some = _sampled(question, path)
    if some is None or _called_for(some, rate) > POOLING * question.inventory.devices:
        return with_most(question, path)
    share = math.ceil(min(question.inventory.devices, _devices(some, rate)) / cells)
    few = _parts(replace(question, rate=rate / cells), share)
    part = _first_with_fewest(few, path)
    found = _smallest_first(part, some, rate)
    if part is None and all(one.inventory.devices < share for one in few):
        plan = _as_measured(question, path, some, few)
    else:
        plan = _copied(question, *found[0], rate)
    return plan or _of_what_fits(question, path, rate, cells, found[-1])


def _parts(cell: Question, most: int) -> Sequence[Question]:
    """What of a cell is searched for the fewest devices, one after the other; no part has more than `most`."""
    devices = dict.fromkeys(min(most, narrowed(cell, spare).inventory.devices) for spare in SPARE)
    return [replace(cell, inventory=bounded(cell.inventory, some)) for some in devices]


def _of_what_fits(question: Question, path: Path, rate: float, cells: int, found: tuple[Search, Winner]) -> Plan:
    """The fewest devices of copies that were found and of parts of all nodes; the most, if none holds the rate."""
    parted = for_a_rate(question, path, *divided(question, cells))
    plans = (parted, _copied(question, *found, rate))
    feasible = [plan for plan in plans if plan is not None and plan.feasible and plan.chosen is not None]
    return min(feasible, key=lambda plan: plan.chosen.placement.devices if plan.chosen else 0, default=parted)


def _smallest_first(
    part: tuple[Search, Winner] | None, some: tuple[Search, Winner], rate: float
) -> Sequence[tuple[Search, Winner]]:
    """By what copies that hold a rate take together; a part may not have been found."""
    found = [some] if part is None else [part, some]
    return sorted(found, key=lambda one: _devices(one, rate))


def _devices(found: tuple[Search, Winner], rate: float) -> int:
    """What copies that hold a rate take together."""
    search, winner = found
    return winner.placement.devices * _copies(search, winner.placement, _goodput(search, winner), rate)


def _goodput(search: Search, winner: Winner) -> float:
    level = -1 if winner.level is None else winner.level
    return max(search.held, search.verifier.evaluator.ladder.rate(winner.placement, level))


def _called_for(found: tuple[Search, Winner], rate: float) -> float:
    """Devices that a rate takes at what a fleet holds per device, whole or not."""
    search, winner = found
    return winner.placement.devices * rate / _goodput(search, winner)


def _copied(question: Question, search: Search, winner: Winner, rate: float) -> Plan | None:
    """Copies of the winner, or of another that takes fewer devices in copies; None: there is no room for them."""
    chosen, others = candidates(search, winner)
    numbers = {chosen: _copies(search, chosen.placement, chosen.goodput, rate)}
    numbers |= {one: copies(rate, one.goodput) for one in others}
    devices = {one: number * one.placement.devices for one, number in numbers.items()}
    for one in sorted((one for one in numbers if devices[one] <= devices[chosen]), key=lambda one: devices[one]):
        if have_room(question, search.question, one.placement, numbers[one]):
            rest, held = [other for other in numbers if other is not one], rate / numbers[one]
            return repeated(question, plan_of(search, one.at_least(held), rest, held), numbers[one])
    return None


def _copies(search: Search, placement: Placement, goodput: float, rate: float) -> int:
    """The fewest copies each of which holds its part of a rate; a step above `goodput` is known not to be held."""
    least, most = copies(rate, goodput * STEP), copies(rate, goodput)
    while least < most:
        middle = (least + most) // 2
        if search.verifier.holds(placement, rate / middle):
            most = middle
        else:
            least = middle + 1
    return most


def for_a_rate(question: Question, path: Path, cells: int, cell: Question) -> Plan:
    """The fewest devices that hold the rate, else the most that all hold."""
    few = _parts(cell, cell.inventory.devices)
    found = _first_with_fewest(few, path)
    if found is not None:
        return _in_parts(question, path, *found, cells)
    some = _sampled(question, path)
    return (None if some is None else _as_measured(question, path, some, few)) or with_most(question, path)


def _as_measured(
    question: Question, path: Path, some: tuple[Search, Winner], searched: Sequence[Question]
) -> Plan | None:
    """Fleets for a rate that takes far more than the bounds call for: how much, the best per device shows.

    None: there is no room for what was found.
    """
    placement, rate, there_are = some[1].placement, question.rate, question.inventory.devices
    if rate is None or _called_for(some, rate) > GAINED * there_are:
        return None
    times = rate / _goodput(*some)
    cells = max(1, math.floor(times * sum(pool.replicas for pool in placement.pools) / POOLED))
    spare = 1 if isinstance(placement, Colocated) else SPARE[0]  # units leave some of each node's devices out
    devices = min(spare * math.ceil(times / cells) * placement.devices, there_are // cells)
    part = replace(question, rate=rate / cells, inventory=bounded(question.inventory, devices))
    known = any((one.inventory, one.rate) == (part.inventory, part.rate) for one in searched)
    found = _smallest_first(None if known else _with_fewest(part, path), some, rate)
    return next((plan for pair in found if (plan := _copied(question, *pair, rate)) is not None), None)


def _sampled(question: Question, path: Path) -> tuple[Search, Winner] | None:
    """The best per device of a few devices; None: none holds the targets."""
    search = search_of(without_rate(question, SAMPLED), path, PER_DEVICE)
    winner = best(search)
    return None if winner is None or winner.level is None else (search, winner)


def _in_parts(question: Question, path: Path, search: Search, winner: Winner, cells: int) -> Plan:
    """A fleet of so many cells, fewer where each holds more than its part; the most where links are too few."""
    if question.rate is None or cells == 1:
        return explained(search, winner, search.question.rate)
    return _copied(question, search, winner, question.rate) or with_most(question, path)


def _first_with_fewest(parts: Iterable[Question], path: Path) -> tuple[Search, Winner] | None:
    return next((found for part in parts if (found := _with_fewest(part, path)) is not None), None)


def _with_fewest(question: Question, path: Path) -> tuple[Search, Winner] | None:
    """The fleet of one cell with the fewest devices that holds its rate; None: none is found."""
    search = search_of(question, path, PER_DEVICE)
    winner = None if question.rate is None else fewest(search, question.rate)
    return None if winner is None else (search, winner)


def with_most(question: Question, path: Path) -> Plan:
    """The fleet that holds the highest rate, as much of it as a lower one takes.

    How all devices are cut into cells does not depend on the rate asked for: large cells, in which wide instances pool,
    or small ones, in which KV has fewer ways.
    """
    parts = dict(all_in_cells(question, most) for most in (SEARCHED, SAMPLED))
    plans = [_of_all(question, path, cells, cell) for cells, cell in parts.items()]
    return max(plans, key=_worth)


def _worth(plan: Plan) -> tuple[bool, float]:
    """Whether it holds the rate, and with how few devices; else how much it holds."""
    if plan.chosen is None:
        return False, 0.0
    return plan.feasible, -plan.chosen.placement.devices if plan.feasible else plan.chosen.goodput


def _of_all(question: Question, path: Path, cells: int, cell: Question) -> Plan:
    """The fleet that holds the highest rate, of so many cells."""
    whole = search_of(cell, path, Ladder(cell.inventory.devices))
    winner = best(whole)
    most = repeated(question, explained(whole, winner), cells)
    if cells == 1 or not most.feasible or winner is None or question.rate is None:
        return most
    return _copied(question, whole, winner, question.rate) or most
