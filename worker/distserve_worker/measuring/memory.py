"""How much memory a model needs, and what is left for its KV cache."""

from typing import Final

from distserve_proto.contract import ExitReason
from distserve_worker.exiting import WorkerFailure
from distserve_worker.weights.config import ModelConfig

BYTES: Final = {"FP32": 4, "BF16": 2}
MOST_KV_BYTES: Final = 1 << 29  # enough for all batches of a small model; those of a large one take too long anyway
# of the weights: loading copies tensors one at a time, the embeddings being the largest
_LOADING: Final = 1.15
_BESIDES: Final = 512 << 20  # libraries, activations and the smallest KV cache


def parameters(config: ModelConfig) -> int:
    """Weights of the whole model; norms are not worth counting."""
    attention = config.hidden * config.head_dim * 2 * (config.heads + config.kv_heads)
    tables = config.vocab * config.hidden * (1 if config.tied_embeddings else 2)
    return tables + config.layers * (attention + 3 * config.hidden * config.ffn)


def kv_bytes(config: ModelConfig, dtype: str, free: int) -> int:
    """Bytes to set aside out of `free` ones. Raises `WorkerFailure` (ModelDoesNotFit) with the numbers."""
    weights = parameters(config) * BYTES[dtype]
    needed = int(_LOADING * weights) + _BESIDES
    if needed > free:
        smaller = "give --dtype BF16 or" if dtype == "FP32" else "give"
        raise WorkerFailure(
            ExitReason.MODEL_DOES_NOT_FIT,
            f"its {_gigabytes(weights)} of weights in {dtype} take {_gigabytes(needed)} to run, {_gigabytes(free)} of "
            f"memory are free: {smaller} a smaller model",
        )
    return min(MOST_KV_BYTES, _BESIDES // 4 + (free - needed) // 2)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
