"""Tells models apart without reading all of their bytes."""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from distserve_worker.engine.loading.source import StoredTensor
from distserve_worker.weights.config import ModelConfig

SAMPLES: Final = 8
SAMPLE_BYTES: Final = 256


def weights_digest(config: ModelConfig, tensors: Iterable[StoredTensor], dtype: str) -> str:
    """Hex digest over what decides a KV cache's content, the same on every rank and role of one model.

    It covers name, shape, stored dtype and `SAMPLES` evenly spread samples of every tensor, the constants that enter
    the computation, and the dtype computed in.
    """
    digest = blake2b(digest_size=16)
    # neither where texts end nor how long they may be changes what is computed
    constants = replace(config, eos_token_ids=frozenset(), max_positions=1)
    digest.update(repr((dtype, constants)).encode())
    for tensor in sorted(tensors, key=lambda tensor: tensor.name):
        digest.update(repr((tensor.name, tensor.shape, tensor.dtype)).encode())
        with tensor.path.open("rb") as file:
            for offset in _sample_offsets(tensor.nbytes):
                file.seek(tensor.offset + offset)
                digest.update(file.read(min(SAMPLE_BYTES, tensor.nbytes - offset)))
    return digest.hexdigest()


def _sample_offsets(nbytes: int) -> list[int]:
    last = max(0, nbytes - SAMPLE_BYTES)
    return sorted({last * index // (SAMPLES - 1) for index in range(SAMPLES)})
