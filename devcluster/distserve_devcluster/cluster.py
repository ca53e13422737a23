"""What a local cluster is asked to be, and what can be said about one that runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from distserve_devcluster.images import Image, default_images
from distserve_devcluster.locations import StateFolder, default_state_folder, models_folder

DEFAULT_NAME = "demo"
DEFAULT_GPU_PRODUCT = "NVIDIA-H100-80GB-HBM3"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster to start; `gpus` per node are pretended where the machine has none.

    One that `ends_with_starter` is for tests: it ends with the process that started it, however that happens.
    """

    name: str = DEFAULT_NAME
    state_folder: Path | None = None
    gpus: int = 0
    gpu_product: str = DEFAULT_GPU_PRODUCT
    nodes: int = 1
    ends_with_starter: bool = False
    images: Mapping[str, Image] = field(default_factory=default_images)
    models: Path = field(default_factory=models_folder)

    @property
    def state(self) -> StateFolder:
        """Where this cluster lives on disk."""
        return StateFolder(self.state_folder or default_state_folder(self.name))


@dataclass(frozen=True, slots=True)
class Programs:
    """The built command-line programs."""

    devcluster: Path
    kubectl: Path
    helm: Path

    @property
    def folders(self) -> list[Path]:
        """The folders in the cache that hold them."""
        return sorted({self.devcluster.parent, self.kubectl.parent, self.helm.parent})


@dataclass(frozen=True, slots=True)
class Component:
    """One program of the cluster; `pid` is the host's, 0 when it does not run."""

    name: str
    pid: int
    running: bool


@dataclass(frozen=True, slots=True)
class Container:
    """A running container; `pid` is the host's id of its first process."""

    namespace: str
    pod: str
    container: str
    pid: int


@dataclass(frozen=True, slots=True)
class Published:
    """A Service that the host reaches at 127.0.0.1:`port`."""

    service: str
    port: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster, as its supervisor describes it."""

    name: str
    phase: Literal["starting", "ready"]
    kubeconfig: Path
    api_server: str
    logs: Path
    kubectl: Path
    helm: Path
    components: tuple[Component, ...]
    containers: tuple[Container, ...]
    published: tuple[Published, ...]

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any], programs: Programs) -> "Cluster":
        """From the supervisor's answer to a request."""
        return cls(
            name=answer["name"],
            phase=answer["phase"],
            kubeconfig=Path(answer["kubeconfig"]),
            api_server=answer["apiServer"],
            logs=Path(answer["logs"]),
            kubectl=programs.kubectl,
            helm=programs.helm,
            components=tuple(Component(**each) for each in answer["components"]),
            containers=tuple(Container(**each) for each in answer["containers"]),
            published=tuple(Published(**each) for each in answer["published"]),
        )

    def to_json(self) -> dict[str, Any]:
        """The form of `distserve dev status -o json`."""
        return {
            "name": self.name,
            "running": True,
            "phase": self.phase,
            "kubeconfig": str(self.kubeconfig),
            "apiServer": self.api_server,
            "kubectl": str(self.kubectl),
            "helm": str(self.helm),
            "logs": str(self.logs),
            "components": [asdict(each) for each in self.components],
            "containers": [asdict(each) for each in self.containers],
            "published": [asdict(each) for each in self.published],
        }

    def container(self, namespace: str, pod: str, container: str | None = None) -> Container:
        """The pod's container of that name, or its only one.

        Raises:
            LookupError: no such container runs, or several do and none was named.
        """
        found = [
            each
            for each in self.containers
            if (each.namespace, each.pod) == (namespace, pod) and container in {None, each.container}
        ]
        if len(found) == 1:
            return found[0]
        names = ", ".join(each.container for each in found) or "none"
        raise LookupError(f"pod {namespace}/{pod}: name one container; running: {names}")
