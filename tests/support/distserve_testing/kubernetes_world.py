"""A model of what Kubernetes does to worker pods, for planning against without a cluster: time, kubelet, faults."""

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.manifests.worker_template import worker_template
from distserve_operator.names import identity_of, worker_pod
from distserve_operator.observed.fleet import Fleet
from distserve_operator.observed.pods import WorkerPod
from distserve_operator.observed.problems import Problem
from distserve_operator.plan.actions import CreatePod, DeletePod, RelabelPod
from distserve_operator.plan.fleet_plan import Plan, make_plan
from distserve_proto.contract import Role

START = datetime(2026, 1, 1, tzinfo=UTC)
GRACE = timedelta(seconds=75)
WOUNDS = ("unready", "restart", "mislabel")  # what a pod may survive


@dataclass
class World:
    """Pods of one deployment. `broken` holds template hashes and images whose pods never get ready."""

    deployment: DistServeDeployment
    settings: WorkloadSettings
    pods: dict[str, WorkerPod] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    now: datetime = START
    made: int = 0

    def plan(self) -> Plan:
        """What the operator would do now."""
        return make_plan(self.deployment, self.settings, Fleet(pods=tuple(self.pods.values())), self.now)

    def act(self, plan: Plan, limit: int | None = None) -> int:
        """Carry out the first `limit` actions on pods, as an operator that is killed then; returns how many."""
        actions = [action for action in plan.actions if isinstance(action, CreatePod | DeletePod | RelabelPod)][:limit]
        for action in actions:
            match action:
                case CreatePod(role, instance, attempt):
                    self._create(role, instance, attempt)
                case RelabelPod(_, uid):
                    self.pods[uid] = replace(self.pods[uid], labelled=True)
                case DeletePod(_, uid):
                    self._delete(uid)
        return len(actions)

    def held(self) -> int:
        """Devices of pods that still exist, those on dead nodes apart."""
        dead = timedelta(seconds=30)
        return sum(
            pod.devices
            for pod in self.pods.values()
            if not pod.ended and (pod.deadline is None or self.now < pod.deadline + dead)
        )

    def ready(self, role: Role) -> int:
        """Pods of a role that take work."""
        return sum(pod.ready for pod in self.pods.values() if pod.role == role)

    def hash_of(self, role: Role) -> str:
        """The current template of a role."""
        return worker_template(self.deployment, role, self.settings).hash

    def tick(self, seconds: float = 5.0) -> None:
        """Time passes: pods start, and those that were asked to end are gone."""
        self.now += timedelta(seconds=seconds)
        for uid, pod in list(self.pods.items()):
            if pod.terminating:
                del self.pods[uid]
            elif pod.alive and not self.broken & {pod.template_hash, pod.source and pod.source.image}:
                self.pods[uid] = replace(pod, ready=True, started=True, problem=None)

    def disturb(self, choose: random.Random) -> None:
        """One fault, chosen at random, to one pod."""
        if not self.pods:
            return
        uid = choose.choice(sorted(self.pods))
        pod = self.pods[uid]
        fault = choose.choice(["fail", "delete", "dead node", "vanish", *WOUNDS])
        if fault == "fail" and pod.alive:
            self.pods[uid] = replace(pod, ended=True, ready=False, ended_at=self.now, problem=Problem("Evicted", ""))
        elif fault == "delete":
            self._delete(uid)
        elif fault == "dead node" and not pod.ended:
            self.pods[uid] = replace(pod, ready=False, deadline=self.now - timedelta(seconds=60))
        elif fault == "vanish":
            del self.pods[uid]
        elif fault in WOUNDS and pod.alive:
            started, labelled = pod.started and fault != "restart", pod.labelled and fault != "mislabel"
            self.pods[uid] = replace(pod, ready=False, started=started, labelled=labelled)

    def _create(self, role: Role, instance: int, attempt: int) -> None:
        template = worker_template(self.deployment, role, self.settings)
        name = worker_pod(self.deployment.name, role, instance, 0, template.hash, attempt)
        assert name not in {pod.name for pod in self.pods.values()}, f"{name} exists already"
        self.made += 1
        uid = f"uid-{self.made:05}"
        self.pods[uid] = WorkerPod(
            name=name,
            uid=uid,
            identity=identity_of(name),
            labelled=True,
            devices=template.devices,
            source=template.source,
            ready=False,
            started=False,
            ended=False,
            created=self.now,
            ended_at=None,
            deadline=None,
            problem=None,
        )

    def _delete(self, uid: str) -> None:
        pod = self.pods[uid]
        if pod.ended:
            del self.pods[uid]
        elif pod.deadline is None:
            self.pods[uid] = replace(pod, ready=False, deadline=self.now + GRACE)


def settle(world: World, rounds: int = 400) -> None:
    """Plan, act and let time pass until nothing more is to do and everything has started."""
    for _ in range(rounds):
        plan = world.plan()
        done = world.act(plan)
        before = dict(world.pods)
        world.tick(5.0 if plan.wake_at is None else max((plan.wake_at - world.now).total_seconds(), 5.0))
        if done == 0 and world.pods == before and plan.wake_at is None:
            return
    raise AssertionError(f"not settled after {rounds} rounds: {sorted(pod.name for pod in world.pods.values())}")
