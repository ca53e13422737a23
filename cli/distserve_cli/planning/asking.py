"""From wishes to the question that the search answers: names become models, devices, latencies and workloads."""

import json
import pathlib
from typing import Any

from distserve_cli.planning.errors import BadInput, naming
from distserve_cli.planning.wishes import Wishes
from distserve_operator.api import deployment as spec
from distserve_operator.api.capability import WORKERS, WORKERS_TEXT
from distserve_operator.api.devices import DeviceType
from distserve_operator.api.parsing import NVIDIA_GPU
from distserve_operator.placement.catalogue.configs import model_from_config
from distserve_operator.placement.catalogue.devices import device
from distserve_operator.placement.catalogue.models import model_shape
from distserve_operator.placement.catalogue.uris import model_of_uri
from distserve_operator.placement.device import Device, Inventory
from distserve_operator.placement.latency.choosing import latency_model
from distserve_operator.placement.latency.law import LatencyModel
from distserve_operator.placement.latency.profile_parsing import parse_profile
from distserve_operator.placement.legible import legible
from distserve_operator.placement.model import ModelShape
from distserve_operator.placement.question import Affinity, FiniteWindow, Question, Steady
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.choosing import choose_arrivals, choose_lengths
from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.trace import Trace, lengths_of
from distserve_operator.placement.workload.workload import Workload
from distserve_operator.plan.question import device_of, longest_request, runnable

BYTES_PER_GIGABIT = 1e9 / 8


def question_of(wishes: Wishes, trace: Trace | None = None, name: str = "") -> Question:
    """Look everything up. Lengths are those of the trace called `name` when there is one. Raises BadInput.

    A resource with mode Apply asks what its operator asks: about the fleets that workers can run.
    """
    model = _model(wishes)
    cluster = _cluster(wishes)
    gpu = device_of(cluster, model)
    question = Question(
        model=model,
        device=gpu,
        inventory=_inventory(wishes),
        latency=_latency(wishes, model, gpu),
        workload=_workload(wishes, model) if trace is None else _traced(wishes, model, trace, name),
        slo=_slo(wishes),
        rate=wishes.rate,
        affinity=Affinity(wishes.affinity),
        network_bytes_per_second=None if wishes.link_gbps is None else wishes.link_gbps * BYTES_PER_GIGABIT,
        only=wishes.only,
        rule=wishes.rule,
        window=_window(wishes),
        seed=wishes.seed,
    )
    if wishes.mode is spec.Mode.PLAN:
        return question
    if question.affinity is Affinity.LOW and not WORKERS.inside_nodes:
        raise BadInput(
            f"{wishes.named('affinity')}: {WORKERS_TEXT}: choose Auto or High, or mode Plan to only see the answer"
        )
    return runnable(question, cluster)


def _cluster(wishes: Wishes) -> spec.Cluster:
    """The devices as a resource would say them. Raises BadInput."""
    with naming(wishes.named("gpu")):
        kind = DeviceType(device(wishes.gpu).name)
    on_cpus = kind is DeviceType.CPU
    return spec.Cluster(
        device_type=kind,
        resource_name=None if on_cpus else NVIDIA_GPU,
        cores_per_device=wishes.cores_per_device if on_cpus else None,
        memory_per_device=wishes.memory_per_device,
        max_devices=_inventory(wishes).most,
        affinity=spec.Affinity(wishes.affinity),
    )


def _model(wishes: Wishes) -> ModelShape:
    with naming(wishes.named("model")):
        if "://" in wishes.model:
            return model_of_uri(wishes.model, wishes.dtype)
        path = pathlib.Path(wishes.model)
        if path.is_dir():
            path /= "config.json"
        if path.suffix == ".json":
            return model_from_config(_config(path), path.parent.name or None, wishes.dtype)
        return model_shape(wishes.model, wishes.dtype)


def _config(path: pathlib.Path) -> dict[str, Any]:
    text = _text(path)
    with legible():
        config = json.loads(text)
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no JSON object")
    return config


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from error


def _inventory(wishes: Wishes) -> Inventory:
    """Whole nodes, as many as the devices asked for need unless their number is given."""
    nodes = wishes.nodes
    if nodes is None:
        nodes = 1 if wishes.max_devices is None else -(-wishes.max_devices // wishes.gpus_per_node)
    free = (wishes.gpus_per_node,) * nodes
    return Inventory(free, sum(free) if wishes.max_devices is None else wishes.max_devices)


def _latency(wishes: Wishes, model: ModelShape, gpu: Device) -> LatencyModel:
    with naming(wishes.named("engine" if wishes.profile is None else "profile")):
        profile = None if wishes.profile is None else parse_profile(_text(pathlib.Path(wishes.profile)))
        return latency_model(model, gpu, wishes.engine, profile, wishes.allow_poor_fit)


def _workload(wishes: Wishes, model: ModelShape) -> Workload:
    assert wishes.lengths is not None  # without a trace the commands require it
    with naming(wishes.named("arrivals")):
        arrivals = choose_arrivals(wishes.arrivals)
    with naming(wishes.named("lengths")):
        return Workload(choose_lengths(wishes.lengths), arrivals, _longest(wishes, model), _bound(wishes, "lengths"))


def _traced(wishes: Wishes, model: ModelShape, trace: Trace, name: str) -> Workload:
    with naming(f"--trace {name}"):
        return Workload(lengths_of(trace), longest=_longest(wishes, model), bound=_bound(wishes))


def _longest(wishes: Wishes, model: ModelShape) -> int:
    try:
        return longest_request(model, wishes.max_model_length, wishes.named("max_model_length"))
    except WorkloadError as error:
        raise BadInput(str(error)) from error


def _bound(wishes: Wishes, beside: str | None = None) -> str | None:
    """What sets the longest request; without the file where a message begins with a field of the same one."""
    if wishes.max_model_length is None:
        return None
    named = wishes.named("max_model_length")
    return named.removeprefix(f"{wishes.resource}: ") if beside in wishes.origins else named


def _slo(wishes: Wishes) -> Slo:
    gap = None if wishes.max_gap_ms is None else wishes.max_gap_ms / 1000
    return Slo(wishes.ttft_ms / 1000, wishes.tpot_ms / 1000, wishes.attainment / 100, gap)


def _window(wishes: Wishes) -> Steady | FiniteWindow:
    kind = FiniteWindow if wishes.finite_window else Steady
    return kind() if wishes.requests is None else kind(wishes.requests)
