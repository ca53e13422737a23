"""What a model is: the numbers that its files state and that every other part computes with."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.limits import MOST, allowed


class Architecture(StrEnum):
    """Families of models that can be served; the value is `model_type` in Hugging Face's config.json."""

    GPT2 = "gpt2"
    LLAMA = "llama"
    MISTRAL = "mistral"
    OPT = "opt"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"


class Activation(StrEnum):
    """Non-linearity of an MLP, by Hugging Face's names."""

    GELU = "gelu"
    GELU_NEW = "gelu_new"
    GELU_TANH = "gelu_pytorch_tanh"
    RELU = "relu"
    SILU = "silu"


_OTHER_NAMES: Final = {"swish": "silu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What every family has; names without a unit are counts. A family's own constants are in a subclass."""

    architecture: Architecture
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_positions: int
    norm_eps: float
    activation: Activation
    tied_embeddings: bool
    eos_token_ids: frozenset[int]


def checked(config: ModelConfig, where: str) -> ModelConfig:
    """`config` itself. Raises `ModelInvalid` naming a field whose value no model can have."""
    for name, most in MOST.items():
        if not 1 <= getattr(config, name) <= most:
            raise ModelInvalid(f"{where}: the model's {name} is {getattr(config, name)}, it must be {allowed(name)}")
    if not 0.0 < config.norm_eps < math.inf:
        raise ModelInvalid(f"{where}: the model's norm_eps is {config.norm_eps}, it must be greater than 0")
    if config.heads % config.kv_heads:
        raise ModelInvalid(f"{where}: {config.heads} heads cannot share {config.kv_heads} key/value heads evenly")
    return config


def architecture_named(name: object, where: str, known: Collection[Architecture] = tuple(Architecture)) -> Architecture:
    """The architecture that a file calls `name`. Raises `ModelInvalid` with the list of `known` ones."""
    for architecture in known:
        if architecture == name:
            return architecture
    raise ModelInvalid(f"{where}: architecture {name} is not known (known: {', '.join(sorted(known))})")


def activation_named(name: str, field: str, where: str) -> Activation:
    """The activation that `field` names. Raises `ModelInvalid` with the list of known ones."""
    try:
        return Activation(_OTHER_NAMES.get(name, name))
    except ValueError:
        raise ModelInvalid(f"{where}: {field} {name} is not known (known: {', '.join(sorted(Activation))})") from None


def even_share(hidden: int, heads: int, where: str) -> int:
    """Size of a head where the heads divide the hidden size. Raises `ModelInvalid` when they do not."""
    if heads < 1 or hidden % heads:
        raise ModelInvalid(f"{where}: {heads} heads do not divide the hidden size {hidden} evenly")
    return hidden // heads
