"""What a model is: the numbers that its files state and that every other part computes with."""

import math
from dataclasses import dataclass
from enum import StrEnum

from distserve_worker.weights.errors import ModelInvalid


class Architecture(StrEnum):
    """Families of models that can be served; the value is `model_type` in Hugging Face's config.json."""

    LLAMA = "llama"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape and constants of one model; names without a unit are counts."""

    architecture: Architecture
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_theta: float
    rope_divisors: tuple[float, ...] | None  # of the head_dim / 2 rotary frequencies; None: the frequencies as they are
    rms_eps: float
    max_positions: int
    tied_embeddings: bool
    eos_token_ids: frozenset[int]


def checked(config: ModelConfig, where: str) -> ModelConfig:
    """`config` itself. Raises `ModelInvalid` naming a field whose value no model can have."""
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "max_positions"):
        if getattr(config, name) < 1:
            raise ModelInvalid(f"{where}: the model's {name} is {getattr(config, name)}, it must be at least 1")
    for name in ("rope_theta", "rms_eps"):
        if not 0.0 < getattr(config, name) < math.inf:
            raise ModelInvalid(f"{where}: the model's {name} is {getattr(config, name)}, it must be greater than 0")
    if config.heads % config.kv_heads:
        raise ModelInvalid(f"{where}: {config.heads} heads cannot share {config.kv_heads} key/value heads evenly")
    if config.head_dim % 2:
        raise ModelInvalid(f"{where}: head_dim is {config.head_dim}, rotary embedding needs an even one")
    if config.rope_divisors is not None and len(config.rope_divisors) != config.head_dim // 2:
        raise ModelInvalid(f"{where}: {len(config.rope_divisors)} rope factors for a head_dim of {config.head_dim}")
    return config


def architecture_named(name: object, where: str) -> Architecture:
    """The architecture that a file calls `name`. Raises `ModelInvalid` with the list of known ones."""
    try:
        return Architecture(str(name))
    except ValueError:
        known = ", ".join(sorted(Architecture))
        raise ModelInvalid(f"{where}: architecture {name} is not known (known: {known})") from None
