"""What a user asks for, from options or from a resource, before names are looked up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from distserve_cli.planning.errors import BadInput
from distserve_operator.api.deployment import Mode

REQUIRED = {
    "model": "spec.model.uri",
    "gpu": "spec.cluster.deviceType",
    "ttft_ms": "spec.slo.ttftMilliseconds",
    "tpot_ms": "spec.slo.tpotMilliseconds",
}
NODE_DEVICES = 8
GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Fields are named after the options; `origins` names the field of the resource for those that come from one."""

    model: str
    gpu: str
    ttft_ms: float
    tpot_ms: float
    max_gap_ms: float | None = None
    attainment: float = 90.0  # percent
    lengths: str | None = None  # None: those of a trace
    arrivals: str = "poisson"
    rate: float | None = None
    dtype: Literal["FP32", "FP16", "BF16", "INT8"] | None = None
    max_model_length: int | None = None
    nodes: int | None = None
    gpus_per_node: int = NODE_DEVICES
    cores_per_device: int = 1  # where a device is a slot of cores; bytes of its memory
    memory_per_device: int = 4 * GIB
    max_devices: int | None = None
    affinity: str = "Auto"
    link_gbps: float | None = None
    engine: str = "distserve"
    profile: str | None = None
    allow_poor_fit: bool = False
    only: Literal["disaggregated", "colocated"] | None = None
    rule: Literal["joint", "paper"] = "joint"
    requests: int | None = None
    finite_window: bool = False
    mode: Mode = Mode.PLAN  # without a resource there is nobody who would carry the answer out
    placed: bool = False  # by the resource itself, whose type of placement is Manual
    seed: int = 0
    origins: Mapping[str, str] = field(default_factory=dict)
    resource: str | None = None  # name of its file

    def named(self, name: str) -> str:
        """A field as the user gave it."""
        value = getattr(self, name)
        return f"{self.origins.get(name) or option(name)} {value}"


def option(name: str) -> str:
    """The option that sets a field."""
    return "--" + name.replace("_", "-")


def missing(name: str, path: str, resource: str | None) -> BadInput:
    """What to say where neither an option nor the field at `path` of the file `resource` is there; None: no file is."""
    if resource is not None:
        return BadInput(f"{resource}: {path} is missing: write it, or give {option(name)}")
    return BadInput(f"{option(name)} is missing: give it, or a resource with {path} by -f FILE")


def gather(
    options: Mapping[str, object],
    fields: Mapping[str, object],
    origins: Mapping[str, str],
    resource: str | None = None,
) -> Wishes:
    """Options over the fields of a `resource`; an option that was not given is None or False.

    Raises:
        BadInput: when something is missing without which nothing can be planned, or when two wishes contradict.
    """
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    for name, path in REQUIRED.items():
        if name not in given and name not in fields:
            raise missing(name, path, resource)
    kept = {name: path for name, path in origins.items() if name not in given}
    chosen: dict[str, Any] = {**fields, **given, "origins": kept, "resource": resource}
    if (chosen.get("rule"), chosen.get("only")) == ("paper", "colocated"):
        raise BadInput("--only colocated: --rule paper knows no colocated fleets, leave one of the two out")
    return Wishes(**chosen)
