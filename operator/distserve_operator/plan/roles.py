"""One worker role: replaces the unhealthy, scales down; then rolls the healthy one by one."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from distserve_operator.api.settings import ImageSource
from distserve_operator.observed.pods import WorkerPod
from distserve_operator.plan.draft import Draft
from distserve_operator.plan.slots import Slot, arrange, redundant
from distserve_proto.contract import Role

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


@dataclass(frozen=True, slots=True)
class Mended:
    """A role after `mend`. `surplus`: ready pods beyond the replicas that stay for the time being."""

    desired: DesiredRole
    slots: tuple[Slot, ...]
    surplus: tuple[WorkerPod, ...]


def mend(desired: DesiredRole, pods: tuple[WorkerPod, ...], draft: Draft) -> Mended:
    """Add to `draft` what the pods of a role need whatever else happens; the missing ones are another matter."""
    slots = arrange(pods, desired.replicas, desired.template_hash)
    for pod, why in redundant(pods, slots):
        draft.delete(pod, why)
    _replace_unhealthy(desired, slots, draft)
    surplus = _scale_down(desired, slots, pods, draft)
    for slot in slots:
        _finish(slot, slots, draft)
    return Mended(desired, slots, surplus)


def roll(mended: Mended, draft: Draft) -> None:
    """Start to renew the next healthy pod of an old template, when no other is being renewed (B28)."""
    desired, slots = mended.desired, mended.slots
    pending = [slot for slot in slots if slot.current is None and slot.old is not None]
    starting = any(not slot.served or (slot.current is not None and not slot.current.ready) for slot in slots)
    if not pending or starting:
        return
    slot = pending[0]
    if slot.old is None or _create(desired, slot, draft, f"renews {slot.old.name}") or draft.leaving:
        return
    draft.delete(slot.old, "its template is outdated and no device is spare: it drains before its successor starts")


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
    desired: DesiredRole, slots: tuple[Slot, ...], pods: tuple[WorkerPod, ...], draft: Draft
) -> tuple[WorkerPod, ...]:
    """Remove instances beyond the replicas, ready ones only as far as others are ready on as many devices as wanted.

    Returns the ready ones that stay.
    """
    surplus = [pod for pod in pods if pod.alive and pod.instance is not None and pod.instance >= desired.replicas]
    ready = sorted((pod for pod in surplus if pod.ready), key=lambda pod: -(pod.instance or 0))
    for pod in surplus:
        if not pod.ready:
            draft.delete(pod, f"only {desired.replicas} instances are wanted")
    dispensable = sum(pod.devices for pod in ready) + sum(map(_ready_devices, slots))
    dispensable -= desired.replicas * desired.devices
    staying = []
    for pod in ready:
        if pod.devices <= dispensable:
            dispensable -= pod.devices
            draft.delete(pod, f"only {desired.replicas} instances are wanted")
        else:
            staying.append(pod)
    return tuple(staying)


def _ready_devices(slot: Slot) -> int:
    return max((pod.devices for pod in (slot.current, slot.old) if pod is not None and pod.ready), default=0)


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
