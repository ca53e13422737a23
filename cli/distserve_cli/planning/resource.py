"""A DistServeDeployment as wishes: model, targets, workload, cluster and type of placement."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import yaml

from distserve_cli.planning import quantities
from distserve_cli.planning.errors import BadInput
from distserve_operator.api.deployment import Mode
from distserve_operator.api.devices import DeviceType
from distserve_operator.api.quantities import parse_bytes
from distserve_operator.api.resource import API_VERSION, KIND
from distserve_operator.placement.legible import legible
from distserve_operator.placement.rates import LOWEST

LISTS: Final = ("List", f"{KIND}List")
DTYPES: Final = ("FP32", "FP16", "BF16", "INT8")
AFFINITIES: Final = ("Low", "High", "Auto")

Fields = Mapping[str, Any]
Read = TypeVar("Read")


class _BelowError(ValueError):
    """What is wrong with a field below the one that is read."""

    def __init__(self, path: str, problem: ValueError) -> None:
        self.path = path
        super().__init__(str(problem))


def parse_resource(text: str, name: str) -> tuple[dict[str, object], dict[str, str], str]:
    """Wishes of the one DistServeDeployment in a YAML text, the field that each comes from, and the name of the file.

    What it leaves out has the default of its schema. Raises BadInput.
    """
    spec = _spec(text, name)
    found: dict[str, object] = {}
    origins: dict[str, str] = {}
    for wish, path, read in READERS:
        value = _at(spec, path, name)
        value = DEFAULTS.get(wish) if value is None else value
        if value is None:
            continue
        try:
            found[wish] = read(value)
        except _BelowError as error:
            raise BadInput(f"{name}: spec.{path}.{error.path}: {error}") from error
        except ValueError as error:
            raise BadInput(f"{name}: spec.{path}: {error}") from error
        origins[wish] = f"{name}: spec.{path}"
    return found, origins, name


def _spec(text: str, name: str) -> Fields:
    try:
        with legible():
            every = list(yaml.safe_load_all(text))
    except ValueError as error:
        raise BadInput(f"{name} is no YAML: {error}") from error
    documents = [each for document in every for each in _resources(document) if each.get("kind") == KIND]
    if len(documents) != 1:
        raise BadInput(f"{name} has {len(documents)} resources of kind {KIND}: expected one")
    (document,) = documents
    version = document.get("apiVersion", API_VERSION)
    if version != API_VERSION:
        raise BadInput(f"{name}: apiVersion is {version!r:.60}: expected {API_VERSION}")
    spec = document.get("spec")
    if not isinstance(spec, dict):
        raise BadInput(f"{name}: spec is missing")
    return spec


def _resources(document: object) -> Iterator[Fields]:
    """A document, or the items of a list as `kubectl get -o yaml` prints it."""
    if not isinstance(document, dict):
        return
    items = document.get("items") if document.get("kind") in LISTS else [document]
    yield from (each for each in items if isinstance(each, dict)) if isinstance(items, list) else ()


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


def _integer(quantity: quantities.Quantity) -> Callable[[object], int]:
    """Of numbers alone: an API server takes no text for one."""

    def read(value: object) -> int:
        if isinstance(value, str):
            raise ValueError(f"{value!r:.60} is text: give {quantity}, without quotes")
        return quantity.read_whole(value)

    return read


def _below(path: str, read: Callable[[object], Read], value: object) -> Read:
    """What is read of a field at a path below. Raises `_BelowError`."""
    try:
        return read(value)
    except ValueError as error:
        raise _BelowError(path, error) from error


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
        kind = _below(f"{side}.distribution", DISTRIBUTION, lengths.get("distribution", "LogNormal"))
        yield str(_below(f"{side}.mean", _integer(MEAN), lengths.get("mean")))
        yield str(_variation(side, kind, lengths.get("variationPercent")) / 100)


def _variation(side: str, kind: str, percent: object) -> int:
    """Percent. As in the schema, lognormal lengths alone have one, and always."""
    if kind == "LogNormal":
        if percent is None:
            raise ValueError(f"{side}.variationPercent is missing: distribution LogNormal needs it, such as 100")
        return _below(f"{side}.variationPercent", _integer(VARIATION), percent)
    if percent is not None:
        raise ValueError(f"{side}.variationPercent is {percent!r} but distribution is Fixed: remove it")
    return 0


def _cores(cluster: object) -> int:
    """Cores that make a device. As in the schema, CPU fleets alone have them, and always."""
    assert isinstance(cluster, dict)  # its device type has been read
    cores, kind = cluster.get("coresPerDevice"), cluster.get("deviceType")
    on_cpus = str(kind).upper() == DeviceType.CPU
    if on_cpus and cores is None:
        raise ValueError("coresPerDevice is missing: deviceType CPU needs the number of cores that make one device")
    if not on_cpus and cores is not None:
        raise ValueError(f"coresPerDevice is {cores!r} but deviceType is {kind}: remove it, only CPU has it")
    return _below("coresPerDevice", _integer(CORES), cores) if on_cpus else 1


def _memory(quantity: object) -> int:
    text = str(quantity)
    size = parse_bytes(text) if len(text) <= MOST_DIGITS and QUANTITY.fullmatch(text) else 0
    if not LEAST_MEMORY <= size <= MOST_MEMORY:
        raise ValueError(f"{text!r:.60} is no memory of a device: give a quantity from 64Mi to 1Pi, such as 3Gi")
    return size


def _mode(value: object) -> Mode:
    return Mode(_one_of(*Mode)(value))


def _placed(placement: object) -> bool:
    """Whether the shape stands in the resource; a placement without a type is Manual, as in the schema."""
    if not isinstance(placement, dict):
        raise ValueError(f"{placement!r}: expected fields such as type")
    kind = placement.get("type")
    if kind not in (None, "Manual", "Auto"):
        raise ValueError(f"type {kind!r} is not known: give Manual, Auto")
    return kind != "Auto"


# as in the schema
MILLISECONDS: Final = quantities.Quantity("number of milliseconds", 1, 3_600_000, whole=True)
PERCENT: Final = quantities.Quantity("percentage", 1, 100, whole=True)
RATE: Final = quantities.Quantity("rate in requests per second", LOWEST, 100_000)
LENGTH: Final = quantities.Quantity("number of tokens", 16, 10_000_000, whole=True)
MEAN: Final = quantities.Quantity("mean number of tokens", 1, 10_000_000, whole=True)
VARIATION: Final = quantities.Quantity("variation in percent", 0, 10_000, whole=True)
CORES: Final = quantities.Quantity("number of cores", 1, 1024, whole=True)
QUANTITY: Final = re.compile(r"[0-9]+([.][0-9]+)?([KMGTP]i|[kMGTP]|[eE][0-9]{1,2})?")
MOST_DIGITS: Final = 32
LEAST_MEMORY: Final = 64 * 1024**2
MOST_MEMORY: Final = 1024**5

DISTRIBUTION: Final = _one_of("LogNormal", "Fixed")

DEFAULTS: Final[Mapping[str, object]] = {"dtype": "BF16", "mode": "Apply"}

# name of the wish, path below spec, and how its value is read
READERS: Final[tuple[tuple[str, str, Callable[[object], object]], ...]] = (
    ("model", "model.uri", _text),
    ("dtype", "model.dtype", _one_of(*DTYPES)),
    ("max_model_length", "model.maxModelLength", _integer(LENGTH)),
    ("ttft_ms", "slo.ttftMilliseconds", _integer(MILLISECONDS)),
    ("tpot_ms", "slo.tpotMilliseconds", _integer(MILLISECONDS)),
    ("max_gap_ms", "slo.maxGapMilliseconds", _integer(MILLISECONDS)),
    ("attainment", "slo.attainmentPercent", _integer(PERCENT)),
    ("rate", "workload.requestsPerSecond", RATE.read),
    ("lengths", "workload", _lengths),
    ("gpu", "cluster.deviceType", _text),
    ("max_devices", "cluster.maxDevices", _integer(quantities.DEVICES)),
    ("affinity", "cluster.affinity", _one_of(*AFFINITIES)),
    ("cores_per_device", "cluster", _cores),
    ("memory_per_device", "cluster.memoryPerDevice", _memory),
    ("mode", "mode", _mode),
    ("placed", "placement", _placed),
)
