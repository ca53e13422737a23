"""Carries out a plan; what is refused becomes a failure for the conditions, and the rest goes on."""

import logging
from collections.abc import Iterable

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.cluster.errors import ApiRefusedError, ForeignObjectError
from distserve_operator.cluster.writing import ClusterWriter
from distserve_operator.conditions.failure import Failure
from distserve_operator.manifests.worker_pod import build_worker_pod
from distserve_operator.manifests.worker_template import worker_template
from distserve_operator.plan.actions import Action, ApplyChild, CreatePod, DeleteChild, DeletePod, RelabelPod
from distserve_operator.plan.children import conflict
from distserve_proto.contract import Role

log = logging.getLogger(__name__)


class Actor:
    """Acts for one deployment after the other."""

    def __init__(self, writer: ClusterWriter, settings: WorkloadSettings) -> None:
        self._writer = writer
        self._settings = settings

    async def perform(
        self, deployment: DistServeDeployment, actions: Iterable[Action]
    ) -> tuple[list[Action], list[Failure]]:
        """What was done and what was refused. Raises `ApiUnreachableError`: then nothing more can be done now."""
        done: list[Action] = []
        failures: list[Failure] = []
        for action in actions:
            try:
                await self._perform(deployment, action)
                done.append(action)
            except ForeignObjectError as error:
                failures.append(conflict(deployment, error.kind, error.name, error.owner))
            except ApiRefusedError as error:
                failures.append(_refused(action, error))
        for failure in failures:
            log.warning("%s/%s: %s: %s", deployment.namespace, deployment.name, failure.reason, failure.message)
        return done, failures

    async def _perform(self, deployment: DistServeDeployment, action: Action) -> None:
        log.info("%s/%s: %s %s", deployment.namespace, deployment.name, verb(action), describe(action))
        match action:
            case CreatePod(role, instance, attempt):
                template = worker_template(deployment, role, self._settings)
                await self._writer.create_pod(deployment, build_worker_pod(deployment, template, instance, attempt))
            case RelabelPod(name, uid, labels):
                await self._writer.relabel_pod(deployment, name, uid, labels)
            case DeletePod(name, uid):
                await self._writer.delete_pod(deployment, name, uid)
            case ApplyChild(child, uid):
                await self._writer.apply(deployment, child.manifest, uid)
            case DeleteChild(kind, name, uid):
                await self._writer.delete_child(deployment, kind, name, uid)


def describe(action: Action) -> str:
    """What an action is about, and why."""
    match action:
        case CreatePod(role, instance, attempt, why):
            return f"{role} instance {instance}, attempt {attempt}: {why}"
        case DeletePod(name, _, why) | RelabelPod(name, _, _, why):
            return f"pod {name}: {why}"
        case ApplyChild(child, _, why):
            return f"{child.kind} {child.name}: {why}"
        case DeleteChild(kind, name, _, why):
            return f"{kind} {name}: {why}"


def verb(action: Action) -> str:
    """What an action does."""
    match action:
        case CreatePod():
            return "create"
        case ApplyChild():
            return "apply"
        case RelabelPod():
            return "relabel"
        case DeletePod() | DeleteChild():
            return "delete"


def _refused(action: Action, error: ApiRefusedError) -> Failure:
    text = f"the API server refused to {verb(action)} {describe(action)}: {error.reason}: {error}"
    match action:
        case CreatePod(role):
            return Failure(role, "PodRefused", text)
        case DeletePod() | RelabelPod():
            return Failure(None, "PodRefused", text)
        case ApplyChild() | DeleteChild():
            return Failure(Role.GATEWAY, "ObjectRefused", text)
