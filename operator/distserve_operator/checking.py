"""`--check`: whether the custom resource is served and the operator's rights are there, for `helm test`."""

from collections.abc import Iterable
from typing import Final

from distserve_operator.api.resource import GROUP, PLURAL
from distserve_operator.arguments import Arguments
from distserve_operator.cluster.connecting import connect
from distserve_operator.cluster.kinds import CHILD_KINDS, DEPLOYMENT_RESOURCE, EVENT, POD, WATCHED, Kind
from distserve_operator.cluster.requesting import Api

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WRITES: Final = ("create", "patch", "delete")


async def check(arguments: Arguments) -> list[str]:
    """What is missing. Raises `ApiRefusedError` or `ApiUnreachableError` when the API server cannot be asked."""
    connection = await connect()
    async with connection:
        api = Api(connection)
        where = arguments.namespaces or ("",)
        missing = [problem for namespace in where for problem in await _missing_rights(api, namespace, arguments)]
        if not missing:
            await api.get(DEPLOYMENT_RESOURCE.path(where[0] or None), {"limit": "1"})
        return missing


def _needed(arguments: Arguments) -> Iterable[dict[str, str]]:
    for kind in WATCHED:
        yield from (_right(kind, verb) for verb in ("list", "watch"))
    for kind in (POD, *CHILD_KINDS.values()):
        yield from (_right(kind, verb) for verb in _WRITES)
    yield _right(EVENT, "create")
    if arguments.namespaces is None:
        # Without it free devices cannot be counted; an operator of some namespaces does without.
        yield {"group": "", "resource": "nodes", "verb": "list"}
    yield {"group": GROUP, "resource": PLURAL, "subresource": "status", "verb": "patch"}
    role = arguments.workloads.gateway_cluster_role
    yield {"group": "rbac.authorization.k8s.io", "resource": "clusterroles", "name": role, "verb": "bind"}


def _right(kind: Kind, verb: str) -> dict[str, str]:
    return {"group": kind.group, "resource": kind.plural, "verb": verb}


async def _missing_rights(api: Api, namespace: str, arguments: Arguments) -> list[str]:
    missing = []
    for right in _needed(arguments):
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": right | {"namespace": namespace}},
        }
        answer = await api.create(_REVIEWS, review)
        if not answer["status"]["allowed"]:
            resource = "/".join(right[part] for part in ("resource", "subresource", "name") if part in right)
            missing.append(f"may not {right['verb']} {resource} in {namespace or 'all namespaces'}")
    return missing
