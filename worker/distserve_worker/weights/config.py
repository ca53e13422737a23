"""What a model is: the numbers that its files state and that every other part computes with."""

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


def architecture_named(name: object, where: str) -> Architecture:
    """The architecture that a file calls `name`. Raises `ModelInvalid` with the list of known ones."""
    try:
        return Architecture(str(name))
    except ValueError:
        known = ", ".join(sorted(Architecture))
        raise ModelInvalid(f"{where}: architecture {name} is not known (known: {known})") from None
