"""How much memory a model needs, and what is left for its KV cache."""

from typing import Final

from distserve_proto.contract import ExitReason
from distserve_worker.exiting import WorkerFailure
from distserve_worker.measuring.arguments import DTYPES
from distserve_worker.weights.config import ModelConfig

MOST_KV_BYTES: Final = 1 << 29  # enough for all batches of a small model; those of a large one take too long anyway
_LOADING: Final = 1.15  # of the weights: a matrix more is held while it is converted, the embeddings are the largest
_BESIDES: Final = 512 << 20  # libraries, activations and the smallest KV cache


def kv_bytes(config: ModelConfig, dtype: str, free: int) -> int:
    """Bytes to set aside out of `free` ones. Raises `WorkerFailure` (ModelDoesNotFit) with the numbers."""
    weights = _weight_bytes(config, dtype)
    needed = _needed(weights)
    if needed > free:
        fitting = [f"--dtype {other} or " for other in DTYPES if _needed(_weight_bytes(config, other)) <= free]
        raise WorkerFailure(
            ExitReason.MODEL_DOES_NOT_FIT,
            f"its {_gigabytes(weights)} of weights in {dtype} take {_gigabytes(needed)} to run, {_gigabytes(free)} of "
            f"memory are free: give {''.join(fitting)}a smaller model",
        )
    return min(MOST_KV_BYTES, _BESIDES // 4 + (free - needed) // 2)


def _weight_bytes(config: ModelConfig, dtype: str) -> int:
    # imported here: importing torch takes seconds, and its threads must have been pinned before
    from distserve_worker.engine.loading.inventory import weight_bytes
    from distserve_worker.engine.parallel import WHOLE, shard_of

    return weight_bytes(config, shard_of(config, WHOLE, 0), dtype)


def _needed(weights: int) -> int:
    return int(_LOADING * weights) + _BESIDES


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
