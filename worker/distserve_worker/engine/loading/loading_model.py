"""Builds a model from its files, one tensor at a time."""

import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from distserve_worker.engine.dtypes import DTYPES
from distserve_worker.engine.loading.digest import weights_digest
from distserve_worker.engine.loading.gguf_source import GgufSource
from distserve_worker.engine.loading.safetensors_source import SafetensorsSource
from distserve_worker.engine.loading.source import TensorSource
from distserve_worker.engine.models.interface import CausalModel
from distserve_worker.engine.models.registry import MODELS
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.gguf_header import read_gguf_header

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and the digest of its weights."""

    model: CausalModel
    digest: str


def load_model(path: Path, config: ModelConfig, dtype: str, device: torch.device) -> LoadedModel:
    """Load the GGUF file or Hugging Face folder `path` in `dtype` onto `device`. Raises `ModelInvalid`."""
    source: TensorSource = SafetensorsSource(path) if path.is_dir() else GgufSource(read_gguf_header(path), config)
    digest = weights_digest(config, source.stored.values(), dtype)
    reader = _WeightReader(source, path, DTYPES[dtype], device)
    model = MODELS[config.architecture](config, reader, device)
    reader.require_all_taken(allowed={"lm_head.weight"} if config.tied_embeddings else set())
    return LoadedModel(model, digest)


class _WeightReader:
    """`Weights` out of a source; logs progress by tenths of the bytes."""

    def __init__(self, source: TensorSource, path: Path, dtype: torch.dtype, device: torch.device) -> None:
        self._source = source
        self._path = path
        self._dtype = dtype
        self._device = device
        self._left = set(source.stored)
        self._total_bytes = sum(stored.nbytes for stored in source.stored.values())
        self._taken_bytes = 0

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """See `Weights.take`."""
        stored = self._source.stored.get(name)
        if stored is None:
            raise ModelInvalid(f"{self._path}: tensor {name} is missing")
        if stored.shape != shape:
            raise ModelInvalid(f"{stored.path}: tensor {name} has the shape {stored.shape}, the model's is {shape}")
        self._left.discard(name)
        self._count(stored.nbytes)
        # a copy: the file is memory-mapped, and a served model must not depend on the file's pages
        return self._source.load(name).to(self._device, self._dtype, copy=True)

    def require_all_taken(self, allowed: set[str]) -> None:
        """Raise `ModelInvalid` for weights that nothing would use: the model has a part that we would leave out."""
        unused = sorted(name for name in self._left - allowed if not name.endswith("rotary_emb.inv_freq"))
        if unused:
            raise ModelInvalid(f"{self._path}: {len(unused)} tensors do not belong to the architecture: {unused[:3]}")

    def _count(self, nbytes: int) -> None:
        before = self._taken_bytes * 10 // self._total_bytes
        self._taken_bytes += nbytes
        if self._taken_bytes * 10 // self._total_bytes > before:
            logger.info(
                "loading %s: %d of %d MB", self._path.name, self._taken_bytes // 10**6, self._total_bytes // 10**6
            )
