"""The plan while it is being made: actions so far and the devices that are still free."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from distserve_operator.observed.pods import WorkerPod
from distserve_operator.plan.actions import CreatePod, DeletePod
from distserve_operator.plan.slots import is_stuck, stuck_at
from distserve_proto.contract import Role


@dataclass(slots=True)
class Draft:
    """`spare` devices may be taken now; `leaving` says that pods on their way out will give some back."""

    spare: int
    leaving: bool
    now: datetime
    actions: list[CreatePod | DeletePod] = field(default_factory=list)
    wake_at: datetime | None = None
    _deleted: set[str] = field(default_factory=set)

    def create(self, role: Role, instance: int, attempt: int, devices: int, why: str) -> bool:
        """Make a pod if its devices are free; says whether they were."""
        if devices > self.spare:
            return False
        self.spare -= devices
        self.actions.append(CreatePod(role, instance, attempt, why))
        return True

    def delete(self, pod: WorkerPod, why: str) -> None:
        """Delete a pod, once. Its devices come free when it has gone, which a later pass sees."""
        if pod.uid not in self._deleted:
            self._deleted.add(pod.uid)
            self.leaving = self.leaving or not pod.ended
            self.actions.append(DeletePod(pod.name, pod.uid, why))

    def wake(self, when: datetime | None) -> None:
        """Look again at `when` even if nothing happens until then."""
        if when is not None and when > self.now and (self.wake_at is None or when < self.wake_at):
            self.wake_at = when


def begin(pods: Iterable[WorkerPod], max_devices: int, now: datetime) -> Draft:
    """An empty plan over all pods of a deployment."""
    holding = [pod for pod in pods if not pod.ended and not is_stuck(pod, now)]
    draft = Draft(
        spare=max_devices - sum(pod.devices for pod in holding),
        leaving=any(pod.terminating for pod in holding),
        now=now,
    )
    for pod in holding:
        draft.wake(stuck_at(pod))
    return draft
