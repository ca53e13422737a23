"""From a spec and the free devices to the question that the search answers."""

from dataclasses import replace
from typing import Final, Literal, cast

from distserve_operator.api.capability import WORKERS
from distserve_operator.api.deployment import Cluster, Mode, Wanted
from distserve_operator.api.targets import Slo, Targets, Workload
from distserve_operator.manifests.devices import kv_cache_bytes
from distserve_operator.observed.nodes import Survey
from distserve_operator.placement import memory
from distserve_operator.placement import slo as seconds
from distserve_operator.placement.catalogue.devices import device
from distserve_operator.placement.catalogue.uris import model_of_uri
from distserve_operator.placement.device import Device, Inventory
from distserve_operator.placement.latency.choosing import latency_model
from distserve_operator.placement.latency.law import LatencyModel
from distserve_operator.placement.model import ModelShape, WeightType
from distserve_operator.placement.question import Affinity, Question
from distserve_operator.placement.shape import Shape
from distserve_operator.placement.workload import workload as load
from distserve_operator.placement.workload.lengths import LogNormal
from distserve_operator.plan.inputs import ENGINE

_PERCENT: Final = 100
_MILLISECONDS: Final = 1000


class DoesNotFitError(ValueError):
    """No instance that this version runs has room for the model; the text has the figures."""


def question_of(wanted: Wanted, targets: Targets, survey: Survey) -> Question:
    """In mode Plan about every fleet there could be, else about those that the workers can run.

    Raises `WorkloadError` for requests that the model cannot take, and `DoesNotFitError`.
    """
    model = model_of_uri(wanted.model.uri, cast("WeightType", wanted.model.dtype))
    slot = device_of(wanted.cluster)
    question = Question(
        model=model,
        device=slot,
        inventory=Inventory(survey.free, wanted.cluster.max_devices),
        latency=latency_model(model, slot, ENGINE),
        workload=_workload(targets.workload, model, wanted.model.max_model_length),
        slo=_slo(targets.slo),
        rate=targets.workload.requests_per_second,
        affinity=Affinity(wanted.cluster.affinity),
    )
    return question if wanted.mode is Mode.PLAN else _runnable(question, wanted.cluster)


def device_of(cluster: Cluster) -> Device:
    """A GPU, or a slot of cores: the catalogue has one core, whose memory does not count as the pod has its own."""
    one = device(cluster.device_type)
    cores = cluster.cores_per_device
    if cores is None:
        return one
    flops = {kind: cores * figure for kind, figure in one.flops.items()}
    return replace(one, memory=cluster.memory_per_device, flops=flops, bandwidth=cores * one.bandwidth)


def _runnable(question: Question, cluster: Cluster) -> Question:
    """The same, of the shapes in `WORKERS` alone and with the KV cache that worker pods really have."""
    return replace(
        question,
        device=_with_real_cache(question.device, question.model, cluster),
        latency=_within_bounds(question.latency),
        deepest=WORKERS.deepest,
        affinity=question.affinity if WORKERS.inside_nodes else Affinity.HIGH,
        only=_only(),
    )


def _only() -> Literal["disaggregated"] | None:
    return None if WORKERS.colocated else "disaggregated"


def _within_bounds(latency: LatencyModel) -> LatencyModel:
    laws = {tp: law for tp, law in latency.laws.items() if tp <= WORKERS.widest}
    return replace(latency, laws=laws)


def _with_real_cache(slot: Device, model: ModelShape, cluster: Cluster) -> Device:
    """The device with as much memory as leaves just that cache beside the weights of an instance of one device."""
    weights = memory.weight_bytes_per_device(model, Shape(1, 1))
    cache = kv_cache_bytes(cluster)
    usable = memory.USABLE * slot.memory
    if weights + cache > usable:
        takes = f"{weights / 1e9:.3g} GB of weights in {model.weight_type} and a KV cache of {cache / 1e9:.3g} GB"
        room = f"{usable / 1e9:.3g} of the {slot.memory / 1e9:.3g} GB of a device can be used"
        raise DoesNotFitError(f"an instance of {model.name} on one device takes {takes}, but {room}")
    return replace(slot, memory=(weights + cache) / memory.USABLE)


def _workload(wanted: Workload, model: ModelShape, limit: int | None) -> load.Workload:
    prompts, outputs = wanted.input_tokens, wanted.output_tokens
    lengths = LogNormal(
        prompts.mean, prompts.variation_percent / _PERCENT, outputs.mean, outputs.variation_percent / _PERCENT
    )
    return load.Workload(lengths, longest=min(model.positions, limit or model.positions))


def _slo(wanted: Slo) -> seconds.Slo:
    gap = wanted.max_gap_milliseconds
    return seconds.Slo(
        ttft=wanted.ttft_milliseconds / _MILLISECONDS,
        tpot=wanted.tpot_milliseconds / _MILLISECONDS,
        attainment=wanted.attainment_percent / _PERCENT,
        gap=None if gap is None else gap / _MILLISECONDS,
    )
