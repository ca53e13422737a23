"""How a pod gets at the model's files: mounts, environment and the path that its program is given."""

from dataclasses import dataclass, field
from typing import Any, Final

from distserve_operator.api.model import ClaimModel, HostModel, HubModel, ModelSource

_MODELS: Final = "/models"
_CACHE: Final = "/cache"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """`argument` is what `--model` gets."""

    argument: str
    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]
    environment: list[dict[str, Any]] = field(default_factory=list)


def model_files(source: ModelSource) -> ModelFiles:
    """Mounts are read-only, except the cache of a pod that downloads."""
    match source:
        case ClaimModel(claim, path):
            volume = {"name": "models", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
            return ModelFiles(f"{_MODELS}/{path}", [volume], [_read_only_mount()])
        case HostModel(folder, name):
            # No `type`: the kubelet would wait for a missing folder for ever, and only an event would say so.
            volume = {"name": "models", "hostPath": {"path": folder}}
            return ModelFiles(f"{_MODELS}/{name}", [volume], [_read_only_mount()])
        case HubModel(uri):
            return ModelFiles(
                uri,
                [{"name": "cache", "emptyDir": {}}],
                [{"name": "cache", "mountPath": _CACHE}],
                [{"name": "HF_HOME", "value": f"{_CACHE}/huggingface"}],
            )


def literal(text: str) -> str:
    """`text` as an argument in which Kubernetes expands no `$(VARIABLE)`."""
    return text.replace("$", "$$")


def _read_only_mount() -> dict[str, Any]:
    return {"name": "models", "mountPath": _MODELS, "readOnly": True}
