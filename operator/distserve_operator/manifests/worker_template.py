"""What the pods of a role are made from, and the hash over exactly that.

The hash is taken over what the spec asks for, not over the rendered pod nor over the operator's flags: another operator
version, with its own images, may render a pod differently and still rolls nothing (B26).
"""

from dataclasses import dataclass

from distserve_operator.api.deployment import Cluster, DistServeDeployment, Model
from distserve_operator.api.settings import ImageSource, WorkloadSettings
from distserve_operator.api.shape import Shape
from distserve_operator.manifests.hashing import hash_of
from distserve_operator.manifests.model_files import source_inputs
from distserve_proto.contract import Role


@dataclass(frozen=True, slots=True)
class WorkerTemplate:
    """Inputs of a worker pod, its identity apart; `source` is from the operator's flags, the rest from the spec."""

    role: Role
    model: Model
    cluster: Cluster
    shape: Shape
    source: ImageSource

    @property
    def devices(self) -> int:
        """Devices that a pod holds: an instance is one pod as long as a pod is one segment."""
        return self.shape.devices_per_instance

    @property
    def hash(self) -> str:
        """Changes whenever, and only when, pods made from the old template must be replaced."""
        return hash_of(
            {
                "role": self.role,
                "uri": self.model.uri,
                "dtype": self.model.dtype,
                "servedName": self.model.served_name,
                "maxModelLength": self.model.max_model_length,
                "deviceType": self.cluster.device_type,
                "resourceName": self.cluster.resource_name,
                "cores": self.cluster.cores_per_device,
                "memory": self.cluster.memory_per_device,
                "tp": self.shape.tp,
                "pp": self.shape.pp,
                "maxBatchTokens": self.shape.max_batch_tokens,
                "chunkTokens": self.shape.chunk_tokens,
                **source_inputs(self.model.source),
            }
        )


def worker_template(deployment: DistServeDeployment, role: Role, settings: WorkloadSettings) -> WorkerTemplate:
    """The template of a role that the deployment's placement has."""
    shape = deployment.placement.shapes[role]
    return WorkerTemplate(role, deployment.model, deployment.cluster, shape, settings.worker)
