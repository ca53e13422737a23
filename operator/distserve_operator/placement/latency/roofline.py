"""Step times out of a datasheet and a model's numbers, where nobody has measured (paper, appendix A).

The constants bring OPT-13B and OPT-66B on A100-80GB close to the steps measured there, at all degrees of tensor
parallelism; a test holds them to it.
"""

import math
from typing import Final

from distserve_operator.placement.device import Device
from distserve_operator.placement.latency.engines import ENGINE_RULES
from distserve_operator.placement.latency.law import DecodePlane, LatencyModel, PrefillPlane, StepLaw
from distserve_operator.placement.memory import kv_heads_per_device, layer_parameters_per_device, split_problem
from distserve_operator.placement.model import BYTES, ModelShape

# shares of the datasheet's figures that kernels reach
COMPUTE: Final = 0.75  # large matrix products; measured steps reach 0.6 to 0.87
MEMORY: Final = 0.7  # decode steps, weights and KV alike; measured 0.64 to 0.75
ATTENTION: Final = 0.3  # of the arithmetic; measured 0.2 without and 0.5 with fused kernels
LINK: Final = 0.5  # all-reduce of a few MB; NCCL reaches 0.75 with large ones
# seconds of each layer, whatever its size
LAUNCH: Final = 35e-6  # some ten kernels, launched one after the other
REDUCE: Final = 27e-6  # one small all-reduce, for each doubling of the devices; a layer has two
REQUEST: Final = 25e-6  # of each request of a decode step: sampling, scattered KV; measured 0.03 to 0.13 ms
# share of reading the weights that the arithmetic of a prefill batch does not hide: measured prefill has a fixed
# part as long as a decode step's, beside a slope near the arithmetic's
UNHIDDEN: Final = 0.9
HOP_TOKENS: Final = 512  # of the batch whose activations go to the next stage


def roofline(model: ModelShape, device: Device, engine: str, why: str) -> LatencyModel:
    """Laws for every tensor parallelism that `model` allows; `why` says for people why it has to be the roofline."""
    degrees = [tp for tp in range(1, model.heads + 1) if split_problem(model, tp) is None]
    activations = HOP_TOKENS * model.hidden * _activation_bytes(model)
    return LatencyModel(
        laws={tp: StepLaw(_prefill(model, device, tp), _decode(model, device, tp)) for tp in degrees},
        rules=ENGINE_RULES[engine],
        hop=REDUCE + activations / (LINK * device.node_link),
        overlap=0.0,
        source=f"roofline of {device.name}: {why}",
    )


def _prefill(model: ModelShape, device: Device, tp: int) -> tuple[PrefillPlane, PrefillPlane]:
    """Bound by the memory, and by the arithmetic. Causal attention multiplies half of the squared length, twice."""
    overhead, reading = _overhead(model, tp), _weights_seconds(model, device, tp)
    reduce = _reduce_seconds(model, device, tp)
    flops = device.flops[model.weight_type]
    products = 2 * model.layers * layer_parameters_per_device(model, tp) / (COMPUTE * flops)
    attention = 2 * model.layers * model.heads / tp * model.head_dim / (ATTENTION * flops)
    traffic = _traffic_seconds(model, device, tp) + _kv_seconds(model, device, tp)
    return (
        PrefillPlane(overhead + reading, traffic + reduce, 0.0),
        PrefillPlane(overhead + UNHIDDEN * reading, products + reduce, attention),
    )


def _decode(model: ModelShape, device: Device, tp: int) -> tuple[DecodePlane, DecodePlane]:
    """Bound by reading the weights, and by their arithmetic; attention reads the KV in both."""
    overhead, reduce = _overhead(model, tp), _reduce_seconds(model, device, tp)
    context = _kv_seconds(model, device, tp)
    parameters = model.layers * layer_parameters_per_device(model, tp) + _head_parameters(model, tp)
    products = 2 * parameters / (COMPUTE * device.flops[model.weight_type])
    reading, traffic = _weights_seconds(model, device, tp), _traffic_seconds(model, device, tp)
    return (
        DecodePlane(overhead + reading, context, traffic + reduce + REQUEST),
        DecodePlane(overhead, context, products + reduce + REQUEST),
    )


def _overhead(model: ModelShape, tp: int) -> float:
    return model.layers * (LAUNCH + 2 * REDUCE * math.log2(tp))


def _weights_seconds(model: ModelShape, device: Device, tp: int) -> float:
    """Seconds to read everything that a step multiplies with."""
    stored = BYTES[model.weight_type]
    layers = stored * model.layers * layer_parameters_per_device(model, tp)
    head = max(2, stored) * _head_parameters(model, tp)
    return (layers + head) / (MEMORY * device.bandwidth)


def _head_parameters(model: ModelShape, tp: int) -> float:
    return model.vocabulary * model.hidden / tp


def _kv_seconds(model: ModelShape, device: Device, tp: int) -> float:
    """Seconds to read or write the KV of one token."""
    elements = 2 * model.layers * kv_heads_per_device(model, tp) * model.head_dim
    return elements * model.kv_bytes / (MEMORY * device.bandwidth)


def _traffic_seconds(model: ModelShape, device: Device, tp: int) -> float:
    """Seconds to write and read what one token's layers hand to each other."""
    elements = 2 * model.layers * (4 * model.hidden + model.ffn / tp)
    return elements * _activation_bytes(model) / (MEMORY * device.bandwidth)


def _reduce_seconds(model: ModelShape, device: Device, tp: int) -> float:
    """Seconds on the links of one token: two all-reduces a layer, each sends 2(tp - 1)/tp of the activations."""
    sent = 2 * model.layers * 2 * (tp - 1) / tp * model.hidden * _activation_bytes(model)
    return sent / (LINK * device.node_link)


def _activation_bytes(model: ModelShape) -> int:
    return max(2, BYTES[model.weight_type])
