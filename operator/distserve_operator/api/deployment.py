"""What a user asks for: the spec of a DistServeDeployment, checked and with its defaults."""

from dataclasses import dataclass
from enum import StrEnum

from distserve_operator.api.devices import DeviceType
from distserve_operator.api.model import ModelSource
from distserve_operator.api.shape import Placement
from distserve_operator.api.targets import Targets


class Mode(StrEnum):
    """`spec.mode`: bring the cluster to the shape, or only say what it is."""

    APPLY = "Apply"
    PLAN = "Plan"


class Affinity(StrEnum):
    """`spec.cluster.affinity`: where KV may travel."""

    AUTO = "Auto"
    HIGH = "High"
    LOW = "Low"


@dataclass(frozen=True, slots=True)
class Model:
    """`spec.model`."""

    uri: str
    source: ModelSource
    dtype: str
    served_name: str
    max_model_length: int | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """`spec.cluster`. `cores_per_device` is set on CPU fleets, `resource_name` on GPU fleets."""

    device_type: DeviceType
    resource_name: str | None
    cores_per_device: int | None
    memory_per_device: int
    max_devices: int
    affinity: Affinity


@dataclass(frozen=True, slots=True)
class Gateway:
    """`spec.gateway`."""

    replicas: int
    port: int


@dataclass(frozen=True, slots=True)
class Security:
    """`spec.security`. `isolate_prefixes`: requests with different API keys share no cached beginning of a prompt."""

    isolate_prefixes: bool = False


@dataclass(frozen=True, slots=True)
class DistServeDeployment:
    """One custom resource with the shape in which it is served."""

    namespace: str
    name: str
    uid: str
    generation: int
    model: Model
    cluster: Cluster
    placement: Placement
    gateway: Gateway
    security: Security = Security()


@dataclass(frozen=True, slots=True)
class Wanted:
    """One custom resource as it is written: with a shape (Manual), or with what to search a shape for (Auto)."""

    namespace: str
    name: str
    uid: str
    generation: int
    mode: Mode
    model: Model
    cluster: Cluster
    placement: Placement | Targets
    gateway: Gateway
    security: Security = Security()

    def placed(self, placement: Placement) -> DistServeDeployment:
        """The same in a shape."""
        return DistServeDeployment(
            self.namespace,
            self.name,
            self.uid,
            self.generation,
            self.model,
            self.cluster,
            placement,
            self.gateway,
            self.security,
        )
