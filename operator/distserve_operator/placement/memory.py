"""Memory of one device: weights and KV blocks, as the reference counts them (paper, section 4)."""

import math
from typing import Final

from distserve_operator.placement.device import Device
from distserve_operator.placement.model import BYTES, ModelShape
from distserve_operator.placement.shape import Shape
from distserve_operator.placement.simulation.block_size import BLOCK_TOKENS

USABLE: Final = 0.94  # share of the memory for weights and KV; the rest is for activations
# norms and biases of a layer, in hidden sizes: the reference's count, and two norms without biases
_VECTORS: Final = 5
_VECTORS_GATED: Final = 2


def weight_bytes_per_device(model: ModelShape, shape: Shape) -> float:
    """Bytes of weights on each device, of the largest stage where the layers do not divide evenly.

    As in the reference, every device holds the embeddings whole. INT8 is for the matrices of the layers only.
    """
    layers = _layers_of_stage(model, shape)
    tables = model.vocabulary * (1 if model.tied_embeddings else 2) + (
        model.positions if model.learned_positions else 0
    )
    vectors = layers * (_VECTORS_GATED if model.gated_ffn else _VECTORS)
    stored = BYTES[model.weight_type]
    return stored * layers * layer_parameters_per_device(model, shape.tp) + max(2, stored) * model.hidden * (
        tables + vectors
    )


def layer_parameters_per_device(model: ModelShape, tp: int) -> float:
    """Weights of one layer's matrices on each of `tp` devices; heads of K and V are copied where there are too few."""
    attention = model.hidden * model.head_dim * (2 * model.heads / tp + 2 * kv_heads_per_device(model, tp))
    return attention + (3 if model.gated_ffn else 2) * model.hidden * model.ffn / tp


def kv_heads_per_device(model: ModelShape, tp: int) -> int:
    """Heads of K and V on each of `tp` devices."""
    return max(1, math.ceil(model.kv_heads / tp))


def block_bytes_per_device(model: ModelShape, shape: Shape) -> int:
    """Bytes of a block of KV on each device."""
    heads = kv_heads_per_device(model, shape.tp)
    return BLOCK_TOKENS * 2 * _layers_of_stage(model, shape) * heads * model.head_dim * model.kv_bytes


def capacity_blocks(model: ModelShape, device: Device, shape: Shape) -> int:
    """KV blocks of one instance beside its weights; 0 when not even one fits, or not the cache that is set aside."""
    free = USABLE * device.memory - weight_bytes_per_device(model, shape)
    if device.cache is not None:
        free = device.cache if free >= device.cache else 0
    return max(0, math.floor(free / block_bytes_per_device(model, shape)))


def split_problem(model: ModelShape, tp: int) -> str | None:
    """Why the layers cannot be split over `tp` devices; None: they can."""
    if model.heads % tp:
        return f"the {model.heads} heads of {model.name} cannot be shared out to {tp} devices"
    if model.kv_heads % tp and tp % model.kv_heads:
        return f"the {model.kv_heads} KV heads of {model.name} cannot be shared out or copied evenly to {tp} devices"
    if model.ffn % tp:
        return f"the {model.ffn} FFN columns of {model.name} cannot be shared out to {tp} devices"
    return None


def shape_problem(model: ModelShape, device: Device, shape: Shape) -> str | None:
    """Why no instance of this shape can be, with the figures; None: it can."""
    problem = split_problem(model, shape.tp)
    if problem is not None:
        return f"{shape}: {problem}"
    if shape.pp > model.layers:
        return f"{shape}: {model.name} has no more than {model.layers} layers"
    if capacity_blocks(model, device, shape) == 0:
        weights = weight_bytes_per_device(model, shape) / 1e9
        usable = USABLE * device.memory / 1e9
        room = "KV" if device.cache is None else f"a KV cache of {device.cache / 1e9:.3g} GB"
        return (
            f"{shape}: {model.name} puts {weights:.1f} GB of weights on each device, which leaves no room for {room}: "
            f"{usable:.1f} of the {device.memory / 1e9:.1f} GB of {device.name} can be used"
        )
    return None


def _layers_of_stage(model: ModelShape, shape: Shape) -> int:
    return math.ceil(model.layers / shape.pp)
