"""How one shape follows another where the roles, or the devices of an instance, are not the same.

What is left of the earlier shape serves until the new one does, if devices allow; if not, it makes room pod by pod.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from distserve_operator.observed.pods import WorkerPod
from distserve_operator.plan.actions import CreatePod
from distserve_operator.plan.draft import Draft
from distserve_operator.plan.roles import Mended
from distserve_operator.plan.slots import is_stuck
from distserve_proto.contract import Role

# How long a pod may wait for a node before others make room for it.
_PATIENCE: Final = timedelta(seconds=60)
Pods = tuple[WorkerPod, ...]


def retire(pods: Pods, roles: Sequence[Mended], draft: Draft) -> None:
    """End the pods of roles that are wanted no more: at once what does not serve, the rest when all instances do."""
    for pod in pods:
        if not pod.ready and not pod.terminating:
            draft.delete(pod, f"no {pod.role} instances are wanted any more")
    if all(slot.served for one in roles for slot in one.slots):
        for pod in _first_to_go(pods, draft):
            draft.delete(pod, "instances of the new shape have taken over")


def make_room(retired: Pods, roles: Sequence[Mended], draft: Draft, *, blocked: bool) -> bool:
    """When an instance lacks devices (`blocked`) or a node, end one pod that must go anyway; says whether one does.

    Not while pods that are leaving will give some back, nor while another instance starts: a shape that does not work
    costs little so.
    """
    in_vain = _waiting_in_vain(roles, draft)
    if not in_vain and not blocked:
        return False
    doomed = next(_doomed(retired, roles), None)
    if doomed is not None and not draft.leaving and not _starts(roles, in_vain, draft):
        draft.delete(doomed, "no device is spare: it makes room for an instance that is missing")
    return True


def _first_to_go(pods: Pods, draft: Draft) -> Iterator[WorkerPod]:
    """Prefill before decode: what a prefill instance still has finds its decode instance."""
    prefill = [pod for pod in pods if pod.role == Role.PREFILL and not pod.ended and not is_stuck(pod, draft.now)]
    return (pod for pod in pods if pod.ready and (pod.role != Role.DECODE or not prefill))


def _starts(roles: Sequence[Mended], in_vain: Pods, draft: Draft) -> bool:
    """Whether an instance is being made, or is not ready yet for another reason than to wait in vain."""
    current = [slot.current for one in roles for slot in one.slots]
    made = any(isinstance(action, CreatePod) for action in draft.actions)
    return made or any(pod is not None and not pod.ready and pod not in in_vain for pod in current)


def _doomed(retired: Pods, roles: Sequence[Mended]) -> Iterator[WorkerPod]:
    """Of an earlier shape, beyond the replicas, of an outdated template; of each first where there are more."""
    surplus = [pod for one in roles for pod in one.surplus]
    outdated = [slot.old for one in roles for slot in one.slots if slot.old is not None and slot.old.ready]
    for pods in ([pod for pod in retired if pod.ready], surplus, outdated):
        counts = [pod.role for pod in pods]
        yield from sorted(
            pods, key=lambda pod: (-counts.count(pod.role), pod.role == Role.DECODE, -(pod.instance or 0))
        )


def _waiting_in_vain(roles: Sequence[Mended], draft: Draft) -> Pods:
    """Pods that no node has had room for for long, and that have no older pod which could give them its own."""
    waiting = [
        slot.current
        for one in roles
        for slot in one.slots
        if slot.old is None and slot.current is not None and _is_unplaced(slot.current)
    ]
    for pod in waiting:
        draft.wake(pod.created + _PATIENCE)
    return tuple(pod for pod in waiting if pod.created + _PATIENCE <= draft.now)


def _is_unplaced(pod: WorkerPod) -> bool:
    return not pod.ready and pod.problem is not None and pod.problem.reason == "Unschedulable"
