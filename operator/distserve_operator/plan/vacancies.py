"""Instances that have no pod: which are made next while devices last."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from distserve_operator.observed.pods import WorkerPod
from distserve_operator.plan.draft import Draft
from distserve_operator.plan.roles import Mended
from distserve_operator.plan.slots import Slot

_LONGEST_DELAY_SECONDS: Final = 300
# A pod that served this long before it failed is replaced at once, however often that has happened.
_PROVEN: Final = timedelta(minutes=10)


def fill(roles: Sequence[Mended], draft: Draft) -> bool:
    """Make the missing pods of all roles as far as devices go; says whether they were too few.

    If they are enough, pods of many devices come first, while there are nodes with so many. If not, every role gets one
    instance before any gets its second: then they can serve between them.
    """
    vacant = [(one, slot) for one in roles for slot in _vacant(one, draft)]
    if sum(one.desired.devices for one, _ in vacant) <= draft.spare:
        vacant.sort(key=lambda pair: -pair[0].desired.devices)
    else:
        vacant.sort(key=lambda pair: pair[1].instance)
    made = [
        draft.create(one.desired.role, slot.instance, slot.attempt, one.desired.devices, _why(slot))
        for one, slot in vacant
    ]
    return not all(made)


def _vacant(one: Mended, draft: Draft) -> Iterator[Slot]:
    """Empty slots whose time has come; the plan is looked at again when that of another has."""
    for slot in one.slots:
        if slot.current is not None or slot.old is not None:
            continue
        due = _retry_at(slot.ended)
        if due is None or due <= draft.now:
            yield slot
        draft.wake(due)


def _retry_at(ended: WorkerPod | None) -> datetime | None:
    """Pods that fail soon after their start are retried ever more slowly."""
    if ended is None or ended.ended_at is None or ended.ended_at - ended.created >= _PROVEN:
        return None
    delay = 0 if ended.attempt == 0 else min(2.0 ** min(ended.attempt, 10), _LONGEST_DELAY_SECONDS)
    return ended.ended_at + timedelta(seconds=delay)


def _why(slot: Slot) -> str:
    return "instance is missing" if slot.ended is None else f"{slot.ended.name} ended"
