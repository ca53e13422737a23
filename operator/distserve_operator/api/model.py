"""Where the weights are: the three forms of `spec.model.uri`."""

import posixpath
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key of a Secret in the deployment's namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True)
class HubModel:
    """`hf://organisation/name@revision`; a pod downloads it itself, with `token` if the hub wants one.

    `cache_claim`: the PersistentVolumeClaim in which all pods keep what they download; None: each keeps its own.
    """

    uri: str
    token: SecretKey | None = None
    cache_claim: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimModel:
    """`pvc://claim/path`: a file or folder inside a PersistentVolumeClaim of the deployment's namespace."""

    claim: str
    path: str


@dataclass(frozen=True, slots=True)
class HostModel:
    """`file:///folder/name`: a file or folder of the node; `folder` is mounted."""

    folder: str
    name: str


ModelSource = HubModel | ClaimModel | HostModel


def parse_model_uri(uri: str) -> ModelSource:
    """The source named by `uri`. Raises ValueError saying which forms there are."""
    scheme, _, rest = uri.partition("://")
    if ".." in rest.split("/"):
        raise ValueError(f'{uri!r} must not contain ".."')
    match scheme:
        case "hf" if rest:
            return HubModel(uri)
        case "pvc":
            claim, _, path = rest.partition("/")
            if claim and path:
                return ClaimModel(claim, posixpath.normpath(path))
        case "file":
            folder, name = posixpath.split(posixpath.normpath(rest))
            if rest.startswith("/") and name and folder != "/":
                return HostModel(folder, name)
    raise ValueError(f"{uri!r}: write hf://organisation/name[@revision], pvc://claim/path or file:///folder/path")
