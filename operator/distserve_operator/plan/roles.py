"""One worker role: fills empty instances, replaces the unhealthy, scales down; then rolls the healthy one by one."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from distserve_operator.api.settings import ImageSource
from distserve_operator.observed.pods import WorkerPod
from distserve_operator.plan.draft import Draft
from distserve_operator.plan.slots import Slot, arrange, redundant
from distserve_proto.contract import Role

_LONGEST_DELAY_SECONDS: Final = 300
# A pod that served this long before it failed is replaced at once, however often that has happened.
_PROVEN: Final = timedelta(minutes=10)
# How long a surge pod may wait for a node before the old pod makes room for it.
_PATIENCE: Final = timedelta(seconds=60)
_UNPLACED: Final = frozenset({"Unschedulable", "VolumeClaimNotFound"})


@dataclass(frozen=True, slots=True)
class DesiredRole:
    """What a role should be."""

    role: Role
    replicas: int
    devices: int
    template_hash: str
    source: ImageSource


def mend(desired: DesiredRole, pods: tuple[WorkerPod, ...], draft: Draft) -> tuple[Slot, ...]:
    """Add to `draft` what a role needs whatever else happens; returns its slots."""
    slots = arrange(pods, desired.replicas, desired.template_hash)
    for pod, why in redundant(pods, slots):
        draft.delete(pod, why)
    blocked = _fill(desired, slots, draft)
    _replace_unhealthy(desired, slots, draft)
    _scale_down(desired, slots, pods, draft, blocked=blocked)
    for slot in slots:
        _finish(slot, slots, draft)
    return slots


def roll(desired: DesiredRole, slots: tuple[Slot, ...], draft: Draft) -> None:
    """Start to renew the next healthy pod of an old template, when no other is being renewed (B28)."""
    pending = [slot for slot in slots if slot.current is None and slot.old is not None]
    starting = any(not slot.served or (slot.current is not None and not slot.current.ready) for slot in slots)
    if not pending or starting:
        return
    slot = pending[0]
    if slot.old is None or _create(desired, slot, draft, f"renews {slot.old.name}") or draft.leaving:
        return
    draft.delete(slot.old, "its template is outdated and no device is spare: it drains before its successor starts")


def _fill(desired: DesiredRole, slots: tuple[Slot, ...], draft: Draft) -> bool:
    """Give empty slots a pod; says whether devices were missing for one."""
    blocked = False
    for slot in slots:
        if slot.current is not None or slot.old is not None:
            continue
        due = _retry_at(slot.ended)
        if due is not None and due > draft.now:
            draft.wake(due)
            continue
        why = "instance is missing" if slot.ended is None else f"{slot.ended.name} ended"
        blocked |= not _create(desired, slot, draft, why)
    return blocked


def _retry_at(ended: WorkerPod | None) -> datetime | None:
    """Pods that fail soon after their start are retried ever more slowly."""
    if ended is None or ended.ended_at is None or ended.ended_at - ended.created >= _PROVEN:
        return None
    delay = 0 if ended.attempt == 0 else min(2.0 ** min(ended.attempt, 10), _LONGEST_DELAY_SECONDS)
    return ended.ended_at + timedelta(seconds=delay)


def _replace_unhealthy(desired: DesiredRole, slots: tuple[Slot, ...], draft: Draft) -> None:
    """An outdated pod that does not serve has nothing to drain and blocks nothing else (B25)."""
    for slot in slots:
        doomed = []
        if slot.old is not None and not slot.old.ready:
            doomed.append(slot.old)
            draft.delete(slot.old, "it is not ready and its template is outdated")
        if slot.current is not None and _runs_the_wrong_image(slot.current, desired):
            doomed.append(slot.current)
            draft.delete(slot.current, f"it has not started, and the image is {desired.source.image} by now")
        if doomed and (slot.current is None or slot.current in doomed):
            _create(desired, slot, draft, f"replaces {doomed[-1].name}, which was not ready")


def _runs_the_wrong_image(pod: WorkerPod, desired: DesiredRole) -> bool:
    """Only of a pod that has not started: new images of the operator's flags renew no other (B26)."""
    return not pod.ready and not pod.started and pod.source not in {None, desired.source}


def _scale_down(
    desired: DesiredRole, slots: tuple[Slot, ...], pods: tuple[WorkerPod, ...], draft: Draft, *, blocked: bool
) -> None:
    """Remove instances beyond the replicas, the ready ones only as far as enough others are ready.

    When a wanted pod lacks devices one surplus pod goes all the same: otherwise both would wait for each other.
    """
    surplus = [pod for pod in pods if pod.alive and pod.instance is not None and pod.instance >= desired.replicas]
    ready = sorted((pod for pod in surplus if pod.ready), key=lambda pod: -(pod.instance or 0))
    for pod in surplus:
        if not pod.ready:
            draft.delete(pod, f"only {desired.replicas} instances are wanted")
    dispensable = sum(slot.served for slot in slots) + len(ready) - desired.replicas
    if dispensable <= 0 and blocked and not draft.leaving:
        dispensable = 1
    for pod in ready[: max(dispensable, 0)]:
        draft.delete(pod, f"only {desired.replicas} instances are wanted")


def _finish(slot: Slot, slots: tuple[Slot, ...], draft: Draft) -> None:
    """End the old pod of a slot whose new one is ready, or has waited in vain for a node with room for both."""
    current, old = slot.current, slot.old
    if current is None or old is None or not old.ready:
        return
    if current.ready:
        draft.delete(old, f"{current.name} has taken over")
        return
    if current.problem is None or current.problem.reason not in _UNPLACED:
        return
    due = current.created + _PATIENCE
    draft.wake(due)
    if due <= draft.now and not draft.leaving and all(other.served for other in slots):
        draft.delete(old, f"no node has room for {current.name} beside it")


def _create(desired: DesiredRole, slot: Slot, draft: Draft, why: str) -> bool:
    return draft.create(desired.role, slot.instance, slot.attempt, desired.devices, why)
