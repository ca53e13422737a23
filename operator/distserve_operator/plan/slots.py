"""Arranges the pods of a role by instance: what serves it, what replaces it, what is one too many."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from distserve_operator.observed.pods import WorkerPod

# After its grace period a pod should be gone at once; on a dead node it stays until the node is removed.
_STUCK_AFTER: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Slot:
    """One instance: its pod of the current template, its pod of an older one, the latest that ended.

    `attempt` is the next free attempt of the current template.
    """

    instance: int
    current: WorkerPod | None
    old: WorkerPod | None
    ended: WorkerPod | None
    attempt: int

    @property
    def served(self) -> bool:
        """Whether a ready pod stands for it."""
        return any(pod is not None and pod.ready for pod in (self.current, self.old))

    @property
    def settled(self) -> bool:
        """Whether it is as it should be."""
        return self.old is None and self.current is not None and self.current.ready


def arrange(pods: Iterable[WorkerPod], replicas: int, template_hash: str) -> tuple[Slot, ...]:
    """The slots 0 to replicas - 1."""
    by_instance: dict[int | None, list[WorkerPod]] = {}
    for pod in pods:
        by_instance.setdefault(pod.instance, []).append(pod)
    return tuple(_slot(i, by_instance.get(i, []), template_hash) for i in range(replicas))


def redundant(pods: Iterable[WorkerPod], slots: tuple[Slot, ...]) -> Iterator[tuple[WorkerPod, str]]:
    """Pods that stand for nothing, with the reason; instances beyond the replicas are another matter."""
    kept = {pod.uid for slot in slots for pod in (slot.current, slot.old, slot.ended) if pod is not None}
    for pod in pods:
        if pod.terminating or pod.uid in kept:
            continue
        if pod.ended:
            yield pod, "it ended and has been replaced"
        elif pod.instance is not None and pod.instance < len(slots):
            yield pod, "another pod serves the same instance"


def is_stuck(pod: WorkerPod, now: datetime) -> bool:
    """Whether a pod should long be gone, as on a dead node; it no longer holds devices that could be used."""
    return pod.deadline is not None and now >= pod.deadline + _STUCK_AFTER


def stuck_at(pod: WorkerPod) -> datetime | None:
    """When a pod that is being deleted counts as stuck."""
    return None if pod.deadline is None else pod.deadline + _STUCK_AFTER


def _slot(instance: int, pods: list[WorkerPod], template_hash: str) -> Slot:
    mine = [pod for pod in pods if pod.template_hash == template_hash]
    current = _best(pod for pod in mine if pod.alive)
    ended = [pod for pod in mine if pod.ended and not pod.terminating]
    return Slot(
        instance=instance,
        current=current,
        old=_best(pod for pod in pods if pod.alive and pod.template_hash != template_hash),
        # The last failure is kept until its successor exists: its attempt and time pace the next one.
        ended=max(ended, key=lambda pod: pod.attempt, default=None) if current is None else None,
        attempt=max((pod.attempt for pod in mine), default=-1) + 1,
    )


def _best(pods: Iterable[WorkerPod]) -> WorkerPod | None:
    return max(pods, key=lambda pod: (pod.ready, pod.created, pod.attempt, pod.uid), default=None)
