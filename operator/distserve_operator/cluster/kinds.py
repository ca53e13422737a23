"""Where the kinds that the operator handles live in the API."""

from dataclasses import dataclass
from typing import Final

from distserve_operator.api.resource import GROUP, KIND, PLURAL, VERSION


@dataclass(frozen=True, slots=True)
class Kind:
    """A namespaced kind; `group` is empty for the core API."""

    name: str
    group: str
    version: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of one object, or of a list (of all namespaces without `namespace`)."""
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = f"/namespaces/{namespace}" if namespace is not None else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part is not None)
        return f"{prefix}{where}/{self.plural}{tail}"


DEPLOYMENT_RESOURCE: Final = Kind(KIND, GROUP, VERSION, PLURAL)
POD: Final = Kind("Pod", "", "v1", "pods")
EVENT: Final = Kind("Event", "events.k8s.io", "v1", "events")
CHILD_KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("ServiceAccount", "", "v1", "serviceaccounts"),
        Kind("RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings"),
        Kind("Service", "", "v1", "services"),
        Kind("Deployment", "apps", "v1", "deployments"),
    )
}
NODES_PATH: Final = "/api/v1/nodes"
WATCHED: Final = (DEPLOYMENT_RESOURCE, POD, *CHILD_KINDS.values())
