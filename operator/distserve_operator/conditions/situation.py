"""What the checks look at."""

from dataclasses import dataclass

from distserve_operator import names
from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.shape import Shape
from distserve_operator.conditions.condition import Verdict
from distserve_operator.conditions.failure import Failure
from distserve_operator.observed.answer import GatewayAnswer
from distserve_operator.observed.fleet import Fleet
from distserve_operator.observed.pods import WorkerPod
from distserve_proto.contract import Role


@dataclass(frozen=True, slots=True)
class RoleSituation:
    """One worker role: what is wanted and what there is. A role that is wanted no more has a shape of 0 replicas."""

    role: Role
    shape: Shape
    template_hash: str
    max_devices: int
    pods: tuple[WorkerPod, ...]
    failures: tuple[Failure, ...]

    @property
    def alive(self) -> tuple[WorkerPod, ...]:
        """Pods that serve or may come to serve, of any template."""
        return tuple(pod for pod in self.pods if pod.alive)

    @property
    def updated(self) -> tuple[WorkerPod, ...]:
        """Those of the current template."""
        return tuple(pod for pod in self.alive if pod.template_hash == self.template_hash)

    @property
    def current(self) -> tuple[WorkerPod, ...]:
        """Pods of the current template, those that ended included: their problems count."""
        return tuple(p for p in self.pods if p.template_hash == self.template_hash and not p.terminating)


@dataclass(frozen=True, slots=True)
class Situation:
    """A whole deployment after a pass; `answer` is the gateway's, None when it was not asked.

    `placement` is PlacementReady, `untouched` why no child is changed; see `decision.Decision`.
    """

    deployment: DistServeDeployment
    placement: Verdict
    roles: tuple[RoleSituation, ...]
    fleet: Fleet
    failures: tuple[Failure, ...]
    untouched: Verdict | None = None
    answer: GatewayAnswer | None = None


def deployment_endpoint(deployment: DistServeDeployment) -> str:
    """Base URL of the OpenAI API for clients inside the cluster."""
    return names.endpoint(deployment.name, deployment.namespace, deployment.gateway.port)
