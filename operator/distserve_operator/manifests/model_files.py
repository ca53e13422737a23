"""How a pod gets at the model's files: mounts, environment and the path that its program is given."""

from dataclasses import dataclass, field
from typing import Any, Final

from distserve_operator.api.model import ClaimModel, HostModel, HubModel, ModelSource

_MODELS: Final = "/models"
_CACHE: Final = "/cache"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """`argument` is what `--model` gets; `writes_claim`: one of the volumes is a claim that is written to."""

    argument: str
    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]
    environment: list[dict[str, Any]] = field(default_factory=list)
    writes_claim: bool = False


def source_inputs(source: ModelSource) -> dict[str, Any]:
    """What a pod is made of besides the URI; None where there is nothing."""
    match source:
        case HubModel(_, token, cache_claim):
            return {"token": token and [token.name, token.key], "cacheClaim": cache_claim}
    return {}


def model_files(source: ModelSource) -> ModelFiles:
    """Mounts are read-only, except the cache of pods that download."""
    match source:
        case ClaimModel(claim, path):
            volume = {"name": "models", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
            return ModelFiles(f"{_MODELS}/{path}", [volume], [_read_only_mount()])
        case HostModel(folder, name):
            # No `type`: the kubelet would wait for a missing folder for ever, and only an event would say so.
            volume = {"name": "models", "hostPath": {"path": folder}}
            return ModelFiles(f"{_MODELS}/{name}", [volume], [_read_only_mount()])
        case HubModel():
            return _downloaded(source)


def literal(text: str) -> str:
    """`text` as an argument in which Kubernetes expands no `$(VARIABLE)`."""
    return text.replace("$", "$$")


def _downloaded(source: HubModel) -> ModelFiles:
    claim, token = source.cache_claim, source.token
    store = {"emptyDir": {}} if claim is None else {"persistentVolumeClaim": {"claimName": claim}}
    environment: list[dict[str, Any]] = [{"name": "HF_HOME", "value": f"{_CACHE}/huggingface"}]
    if token is not None:
        key = {"secretKeyRef": {"name": token.name, "key": token.key}}
        environment.append({"name": "HF_TOKEN", "valueFrom": key})
    mount = {"name": "cache", "mountPath": _CACHE}
    return ModelFiles(source.uri, [{"name": "cache", **store}], [mount], environment, claim is not None)


def _read_only_mount() -> dict[str, Any]:
    return {"name": "models", "mountPath": _MODELS, "readOnly": True}
