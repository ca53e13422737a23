"""Builds one rank's part of a model from its files, reading each part of a tensor straight into its place."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from distserve_worker.engine.dtypes import PRECISIONS
from distserve_worker.engine.loading.digest import weights_digest
from distserve_worker.engine.loading.gguf_source import GgufSource
from distserve_worker.engine.loading.inventory import Inventory, all_shapes, inventory, part_shape
from distserve_worker.engine.loading.safetensors_source import SafetensorsSource
from distserve_worker.engine.loading.source import StoredTensor, TensorSource
from distserve_worker.engine.models.ends import HEAD
from distserve_worker.engine.models.interface import Alone, CausalModel, Collective, Family, Part, Place
from distserve_worker.engine.models.registry import MODELS
from distserve_worker.engine.parallel import WHOLE, Shard, shard_of
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.gguf_header import read_gguf_header

logger = logging.getLogger(__name__)

Progress = Callable[[float], None]  # is told the share of this rank's bytes that is read, from 0 to 1


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """One rank's part of a model, ready to run, and the digest of the whole model's weights."""

    model: CausalModel
    digest: str


def load_model(
    path: Path,
    config: ModelConfig,
    dtype: str,
    device: torch.device,
    *,
    shard: Shard | None = None,
    collective: Collective | None = None,
    progress: Progress | None = None,
) -> LoadedModel:
    """Load the GGUF file or Hugging Face folder `path` in `dtype` onto `device`; without `shard` all of it.

    All names, shapes and dtypes are checked before any weight is read. Raises `ModelInvalid`, `ModelNotFound`.
    """
    source: TensorSource = SafetensorsSource(path) if path.is_dir() else GgufSource(read_gguf_header(path), config)
    shard = shard or shard_of(config, WHOLE, 0)
    place = Place(shard, collective or Alone(), device, device, PRECISIONS[dtype])
    family, shapes = MODELS[config.architecture], all_shapes(config)
    stored = _by_name(source.stored.values(), family, shapes)
    _check(path, source, stored, shapes)
    _require_no_others(path, stored.keys() - shapes.keys(), family, config)
    digest = weights_digest(config, source.stored.values(), dtype)
    taken = inventory(config, shard, place.precision, device)
    log = _ProgressLog(path, _bytes_to_read(stored, taken), progress)
    return LoadedModel(family.build(config, _WeightReader(source, stored, place, log), place), digest)


def _by_name(
    tensors: Iterable[StoredTensor], family: Family, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, StoredTensor]:
    """Stored tensors by the names that the model has for them."""
    return {
        family.base + tensor.name if family.base + tensor.name in shapes else tensor.name: tensor for tensor in tensors
    }


def _check(
    path: Path, source: TensorSource, stored: Mapping[str, StoredTensor], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    for name, shape in shapes.items():
        tensor = stored.get(name)
        if tensor is None:
            raise ModelInvalid(f"{path}: tensor {name} is missing")
        if tensor.shape != shape:
            raise ModelInvalid(f"{tensor.path}: tensor {name} has the shape {tensor.shape}, the model's is {shape}")
        source.require_readable(tensor.name)


def _require_no_others(path: Path, names: Iterable[str], family: Family, config: ModelConfig) -> None:
    """Raise `ModelInvalid` for weights that nothing would use: the model has a part that we would leave out."""
    head = {f"{HEAD}.weight"} if config.tied_embeddings else set()
    unused = sorted(name for name in names if name not in head and not name.endswith(family.buffers))
    if unused:
        raise ModelInvalid(f"{path}: {len(unused)} tensors do not belong to the architecture: {unused[:3]}")


def _bytes_to_read(stored: Mapping[str, StoredTensor], taken: Inventory) -> int:
    sizes = ((stored[name].nbytes, items, taken.shapes[name]) for name, items in taken.items.items())
    return sum(nbytes * items // torch.Size(shape).numel() for nbytes, items, shape in sizes)


class _ProgressLog:
    """Tells how much is read: a listener of every weight, the log of every tenth."""

    def __init__(self, path: Path, total: int, listener: Progress | None) -> None:
        self._path = path
        self._total = max(1, total)
        self._listener = listener
        self._done = 0.0

    def add(self, nbytes: float) -> None:
        """So many bytes more."""
        before = int(self._done / self._total * 10)
        self._done += nbytes
        if self._listener is not None:
            self._listener(min(1.0, self._done / self._total))
        if int(self._done / self._total * 10) > before:
            logger.info("loading %s: %d of %d MB", self._path.name, self._done // 10**6, self._total // 10**6)


class _WeightReader:
    """`Weights` out of a source."""

    def __init__(
        self, source: TensorSource, stored: Mapping[str, StoredTensor], place: Place, log: _ProgressLog
    ) -> None:
        self._source = source
        self._stored = stored
        self._place = place
        self._log = log

    def take(
        self, name: str, shape: tuple[int, ...], part: Part | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Weights.take`; `load_model` has checked name and shape."""
        wanted = part_shape(shape, part)
        if out is None:
            out = torch.empty(wanted, dtype=self._place.precision.compute, device=self._place.device)
        assert out.shape == wanted, f"{name}: room of {tuple(out.shape)} for {wanted}"
        tensor = self._stored[name]
        self._source.read(tensor.name, part, out)
        self._log.add(tensor.nbytes * out.numel() / torch.Size(shape).numel())
        return out
