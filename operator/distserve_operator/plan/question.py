"""From a spec and the free devices to the question that the search answers."""

from dataclasses import replace
from typing import Final, cast

from distserve_operator.api.capability import WORKERS
from distserve_operator.api.deployment import Cluster, Mode, Wanted
from distserve_operator.api.targets import Slo, Targets, Workload
from distserve_operator.manifests.devices import kv_cache_bytes, running_requests
from distserve_operator.observed.nodes import Survey
from distserve_operator.placement import slo as seconds
from distserve_operator.placement.catalogue.devices import device
from distserve_operator.placement.catalogue.uris import model_of_uri
from distserve_operator.placement.device import Device, Inventory
from distserve_operator.placement.latency.choosing import latency_model
from distserve_operator.placement.model import ModelShape, WeightType
from distserve_operator.placement.question import Affinity, Question
from distserve_operator.placement.workload import workload as load
from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.lengths import LogNormal
from distserve_operator.plan.inputs import ENGINE
from distserve_proto.contract import PROCESS_BYTES, SCORE_BYTES

_LIMIT: Final = "spec.model.maxModelLength"
_PERCENT: Final = 100
_MILLISECONDS: Final = 1000


def question_of(wanted: Wanted, targets: Targets, survey: Survey) -> Question:
    """In mode Plan about every fleet there could be, else about those that the workers can run.

    Raises `WorkloadError` for requests that the model cannot take.
    """
    model = model_of_uri(wanted.model.uri, cast("WeightType", wanted.model.dtype))
    slot = device_of(wanted.cluster, model)
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
    return question if wanted.mode is Mode.PLAN else runnable(question, wanted.cluster)


def device_of(cluster: Cluster, model: ModelShape) -> Device:
    """A GPU, or a slot of cores: the catalogue has one core, whose memory does not count as the pod has its own.

    Of that the worker's process takes a part, and the scores of the model's vocabulary. What a step takes besides is
    within what the search leaves to activations.
    """
    one = device(cluster.device_type)
    cores = cluster.cores_per_device
    if cores is None:
        return one
    flops = {kind: cores * figure for kind, figure in one.flops.items()}
    scores = running_requests(cluster) * model.vocabulary * SCORE_BYTES
    memory = max(0, cluster.memory_per_device - PROCESS_BYTES - scores)
    return replace(one, memory=memory, flops=flops, bandwidth=cores * one.bandwidth)


def longest_request(model: ModelShape, limit: int | None, named: str) -> int:
    """Most tokens of a request, prompt and output together.

    Raises `WorkloadError` that begins with `named`, as workers end, for a limit above what the model was trained for.
    """
    if limit is not None and limit > model.positions:
        raise WorkloadError(f"{named}: the context of {model.name} has {model.positions} tokens: give no more")
    return limit or model.positions


def runnable(question: Question, cluster: Cluster) -> Question:
    """The same, of the fleets in `WORKERS` alone, with the KV cache and the seats that worker pods really have."""
    rules, running = question.latency.rules, running_requests(cluster)
    seats = replace(
        rules,
        prefill_requests=min(rules.prefill_requests, running),
        decode_requests=min(rules.decode_requests, running),
    )
    return replace(
        question,
        latency=replace(question.latency, rules=seats),
        device=replace(question.device, cache=kv_cache_bytes(cluster)),
        inventory=replace(question.inventory, whole=not WORKERS.across_nodes),
        affinity=question.affinity if WORKERS.inside_nodes else Affinity.HIGH,
    )


def _workload(wanted: Workload, model: ModelShape, limit: int | None) -> load.Workload:
    prompts, outputs = wanted.input_tokens, wanted.output_tokens
    lengths = LogNormal(
        prompts.mean, prompts.variation_percent / _PERCENT, outputs.mean, outputs.variation_percent / _PERCENT
    )
    longest = longest_request(model, limit, f"{_LIMIT} {limit}")
    return load.Workload(lengths, longest=longest, bound=None if limit is None else _LIMIT)


def _slo(wanted: Slo) -> seconds.Slo:
    gap = wanted.max_gap_milliseconds
    return seconds.Slo(
        ttft=wanted.ttft_milliseconds / _MILLISECONDS,
        tpot=wanted.tpot_milliseconds / _MILLISECONDS,
        attainment=wanted.attainment_percent / _PERCENT,
        gap=None if gap is None else gap / _MILLISECONDS,
    )
