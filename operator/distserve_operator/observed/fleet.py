"""Everything that one pass of the reconcile has seen of a deployment."""

from dataclasses import dataclass

from distserve_operator.observed.children import Child
from distserve_operator.observed.gateway import GatewayPod, GatewayState
from distserve_operator.observed.pods import WorkerPod
from distserve_operator.observed.problems import Problem
from distserve_proto.contract import Role


@dataclass(frozen=True, slots=True)
class Fleet:
    """Worker pods that the deployment controls, its other children (foreign ones of the same name too), its gateway.

    `ready_gateway` is the gateway's pod that can be asked.
    """

    pods: tuple[WorkerPod, ...] = ()
    children: tuple[Child, ...] = ()
    gateway: GatewayState | None = None
    gateway_problem: Problem | None = None
    ready_gateway: GatewayPod | None = None

    def of_role(self, role: Role) -> tuple[WorkerPod, ...]:
        """Pods of one role."""
        return tuple(pod for pod in self.pods if pod.role == role)

    def child(self, kind: str, name: str) -> Child | None:
        """The child of that kind and name, whoever owns it."""
        return next((child for child in self.children if (child.kind, child.name) == (kind, name)), None)
