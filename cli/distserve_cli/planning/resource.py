"""A DistServeDeployment as wishes: model, targets, workload, cluster and type of placement."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import yaml

from distserve_cli.planning import quantities
from distserve_cli.planning.errors import BadInput

KIND: Final = "DistServeDeployment"
DTYPES: Final = ("FP32", "FP16", "BF16", "INT8")
AFFINITIES: Final = ("Low", "High", "Auto")

Fields = Mapping[str, Any]


def parse_resource(text: str, name: str) -> tuple[dict[str, object], dict[str, str]]:
    """Wishes of the one DistServeDeployment in a YAML text, and the field that each comes from. Raises BadInput."""
    spec = _spec(text, name)
    found: dict[str, object] = {}
    origins: dict[str, str] = {}
    for wish, path, read in READERS:
        value = _at(spec, path, name)
        if value is None:
            continue
        try:
            found[wish] = read(value)
        except ValueError as error:
            raise BadInput(f"{name}: spec.{path}: {error}") from error
        origins[wish] = f"{name}: spec.{path}"
    return found, origins


def _spec(text: str, name: str) -> Fields:
    try:
        documents = [each for each in yaml.safe_load_all(text) if isinstance(each, dict) and each.get("kind") == KIND]
    except yaml.YAMLError as error:
        raise BadInput(f"{name} is no YAML: {' '.join(str(error).split())}") from error
    if len(documents) != 1:
        raise BadInput(f"{name} has {len(documents)} resources of kind {KIND}: expected one")
    spec = documents[0].get("spec")
    if not isinstance(spec, dict):
        raise BadInput(f"{name}: spec is missing")
    return spec


def _at(spec: Fields, path: str, name: str) -> object:
    """The value at a dotted path below `spec`; None: it is not there."""
    value: object = spec
    done = "spec"
    for part in path.split("."):
        if not isinstance(value, dict):
            raise BadInput(f"{name}: {done} is {value!r}: expected fields such as {part}")
        value, done = value.get(part), f"{done}.{part}"
        if value is None:
            return None
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no text")
    return value


def _one_of(*choices: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"{value!r} is not known: give {', '.join(choices)}")
        return str(value)

    return read


def _lengths(workload: object) -> str:
    """Both lengths in the words of `--lengths`."""
    if not isinstance(workload, dict):
        raise ValueError(f"{workload!r}: expected requestsPerSecond, inputTokens and outputTokens")
    return "lognormal:" + ",".join(_distributions(workload))


def _distributions(workload: Fields) -> Iterator[str]:
    for side in ("inputTokens", "outputTokens"):
        lengths = workload.get(side)
        if not isinstance(lengths, dict):
            raise ValueError(f"{side} is {lengths!r}: expected distribution, mean and variationPercent")
        kind = _one_of("LogNormal", "Fixed")(lengths.get("distribution", "LogNormal"))
        yield str(TOKENS.read(lengths.get("mean")))
        yield str(VARIATION.read(lengths.get("variationPercent", 100)) / 100 if kind == "LogNormal" else 0)


def _only(kind: object) -> str | None:
    return "colocated" if kind == "Colocated" else None


TOKENS: Final = quantities.Quantity("mean number of tokens", 1, 10_000_000)
VARIATION: Final = quantities.Quantity("variation in percent", 0, 10_000)

# name of the wish, path below spec, and how its value is read
READERS: Final[tuple[tuple[str, str, Callable[[object], object]], ...]] = (
    ("model", "model.uri", _text),
    ("dtype", "model.dtype", _one_of(*DTYPES)),
    ("max_model_length", "model.maxModelLength", quantities.TOKENS.read_whole),
    ("ttft_ms", "slo.ttftMilliseconds", quantities.MILLISECONDS.read),
    ("tpot_ms", "slo.tpotMilliseconds", quantities.MILLISECONDS.read),
    ("max_gap_ms", "slo.maxGapMilliseconds", quantities.MILLISECONDS.read),
    ("attainment", "slo.attainmentPercent", quantities.PERCENT.read),
    ("rate", "workload.requestsPerSecond", quantities.RATE.read),
    ("lengths", "workload", _lengths),
    ("gpu", "cluster.deviceType", _text),
    ("max_devices", "cluster.maxDevices", quantities.DEVICES.read_whole),
    ("affinity", "cluster.affinity", _one_of(*AFFINITIES)),
    ("only", "placement.type", _only),
)
