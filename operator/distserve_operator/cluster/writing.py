"""Creates, applies and deletes; never touches an object that is not ours."""

from collections.abc import Mapping
from typing import Any

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.resource import API_VERSION, KIND
from distserve_operator.cluster.caching import ObjectCache
from distserve_operator.cluster.errors import ApiRefusedError, ForeignObjectError
from distserve_operator.cluster.kinds import CHILD_KINDS, DEPLOYMENT_RESOURCE, POD, Kind
from distserve_operator.cluster.requesting import Api
from distserve_operator.names import label_value
from distserve_operator.observed.children import describe_owner
from distserve_operator.observed.metadata import is_controlled_by

Body = Mapping[str, Any]
NOT_FOUND = 404
CONFLICT = 409


class ClusterWriter:
    """What it writes it tells the cache. Every method raises as `Api` does, and `ForeignObjectError`."""

    def __init__(self, api: Api, cache: ObjectCache) -> None:
        self._api = api
        self._cache = cache

    async def create_pod(self, deployment: DistServeDeployment, pod: Body) -> None:
        """Make a pod. One that is there already is ours from an earlier pass, or it is a conflict."""
        answer: Body
        try:
            answer = await self._api.create(POD.path(deployment.namespace), pod)
        except ApiRefusedError as error:
            if error.status != CONFLICT:
                raise
            answer = await self._adopt(deployment, pod)
        self._learn(POD, deployment, answer)

    async def apply(self, deployment: DistServeDeployment, manifest: Body, uid: str | None) -> None:
        """Apply a child; `uid` is of the object that was seen."""
        kind, name = CHILD_KINDS[manifest["kind"]], manifest["metadata"]["name"]
        path = kind.path(deployment.namespace, name)
        known = uid if uid is not None else await self._owned_uid(deployment, kind, name)
        # With its uid the patch can only hit the object that we have checked.
        metadata = manifest["metadata"] if known is None else {**manifest["metadata"], "uid": known}
        self._learn(kind, deployment, await self._api.apply(path, {**manifest, "metadata": metadata}))

    async def relabel_pod(
        self, deployment: DistServeDeployment, name: str, uid: str, labels: Mapping[str, str]
    ) -> None:
        """Set labels of a pod of ours."""
        patch = {"metadata": {"uid": uid, "labels": labels}}
        self._learn(POD, deployment, await self._api.merge(POD.path(deployment.namespace, name), patch))

    async def delete_pod(self, deployment: DistServeDeployment, name: str, uid: str) -> None:
        """Ask a pod to end, with the grace period that it was made with."""
        await self._delete(deployment, POD, name, uid)

    async def delete_child(self, deployment: DistServeDeployment, kind: str, name: str, uid: str) -> None:
        """Delete another child."""
        await self._delete(deployment, CHILD_KINDS[kind], name, uid)

    async def write_status(self, resource: Body, status: Body) -> None:
        """Replace the status of a custom resource; all of it is ours."""
        metadata = resource["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "namespace": namespace, "uid": metadata["uid"]},
            "status": status,
        }
        answer = await self._api.apply(DEPLOYMENT_RESOURCE.path(namespace, name, "status"), body)
        self._cache.learn(DEPLOYMENT_RESOURCE.name, (namespace, label_value(name)), answer)

    async def _adopt(self, deployment: DistServeDeployment, pod: Body) -> Body:
        """Our own pod that the cache does not show: its labels may have been taken away."""
        name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
        path = POD.path(deployment.namespace, name)
        live = await self._api.get(path)
        if not is_controlled_by(live["metadata"], deployment.uid):
            raise ForeignObjectError(POD.name, name, describe_owner(live["metadata"]))
        if labels.items() <= (live["metadata"].get("labels") or {}).items():
            return live
        return await self._api.merge(path, {"metadata": {"uid": live["metadata"]["uid"], "labels": labels}})

    async def _owned_uid(self, deployment: DistServeDeployment, kind: Kind, name: str) -> str | None:
        """The uid of our object of that name, None when there is none."""
        try:
            live = await self._api.get(kind.path(deployment.namespace, name))
        except ApiRefusedError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        if not is_controlled_by(live["metadata"], deployment.uid):
            raise ForeignObjectError(kind.name, name, describe_owner(live["metadata"]))
        return str(live["metadata"]["uid"])

    async def _delete(self, deployment: DistServeDeployment, kind: Kind, name: str, uid: str) -> None:
        try:
            answer = await self._api.delete(kind.path(deployment.namespace, name), uid)
        except ApiRefusedError as error:
            if error.status in {NOT_FOUND, CONFLICT}:  # gone, or another object has its name
                self._cache.lost([uid])
                return
            raise
        # A graceful deletion answers with the object, an immediate one with a Status.
        if answer.get("kind") == kind.name:
            self._learn(kind, deployment, answer)

    def _learn(self, kind: Kind, deployment: DistServeDeployment, answer: Body) -> None:
        self._cache.learn(kind.name, (deployment.namespace, label_value(deployment.name)), answer)
