"""Steps on a GPU that is not there: torch checks shapes and devices of tensors without content.

It refuses an operation on tensors of two devices, and whatever reads a value on the host. It does not see a copy that
waits: `test_no_step_waits_for_cuda` does, on a GPU.
"""

from pathlib import Path
from typing import Final

import pytest
import torch
from distserve_testing.families import FAMILIES, write_family
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from distserve_worker.engine.blueprint import KV_DTYPE, kv_shard, rank_layout
from distserve_worker.engine.dtypes import DTYPES, PRECISIONS
from distserve_worker.engine.execution.batch import Batch, Prompt, Running, Written
from distserve_worker.engine.execution.rank import Rank
from distserve_worker.engine.interface import KvLayout, Sampling
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.loading.inventory import part_shape
from distserve_worker.engine.models.interface import Alone, Part, Place
from distserve_worker.engine.models.registry import MODELS
from distserve_worker.engine.parallel import WHOLE, Grid, Shard, shard_of
from distserve_worker.engine.sampling.adjustments import adjusted
from distserve_worker.engine.sampling.choice import Choice
from distserve_worker.engine.sampling.distribution import distribution
from distserve_worker.engine.sampling.draw import draw, runners, times
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.reading import read_config

GPU: Final = torch.device("cuda", 0)
# Never a single number of anything: torch copies that as if it had content.
BATCHES: Final = (
    Batch((Prompt(tuple(range(20)), 0, (1, 2), True), Prompt((3, 4, 5), 18, (3, 4), True)), None, (1, 2)),
    Batch(
        (Prompt((1, 2, 3), 16, (5, 6), True),),
        Running(0, (0, 1), (Written(0, 0, (1, 2)), Written(1, 0, (3, 4))), (5, 6), (20, 23)),
    ),
    Batch((), Running(0, (0, 1), (), (5, 6), (21, 24))),
)


class _Weights:
    """`Weights` of the right shapes."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def take(
        self, name: str, shape: tuple[int, ...], part: Part | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        wanted = part_shape(shape, part)
        assert out is None or out.shape == wanted, name
        return torch.empty(wanted, dtype=self._dtype, device=GPU) if out is None else out


@pytest.fixture
def no_content(monkeypatch: pytest.MonkeyPatch) -> FakeTensorMode:
    """Under it tensors have none."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)  # the one operation that has no such form
    return FakeTensorMode()


def _rank(config: ModelConfig, shard: Shard, dtype: str) -> Rank:
    precision = PRECISIONS[dtype]
    place = Place(shard, Alone(), GPU, GPU, precision)
    model = MODELS[config.architecture].build(config, _Weights(precision.compute), place)
    layout = KvLayout(config.layers, config.kv_heads, config.head_dim, 16, KV_DTYPE[dtype])
    return Rank(shard, model, KvMemory(rank_layout(layout, kv_shard(shard)), 20, DTYPES[dtype], GPU))


@pytest.mark.parametrize("grid", [WHOLE, Grid(2, 2)], ids=["whole", "cut"])
@pytest.mark.parametrize("dtype", ["FP32", "INT8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_mixes_no_devices_and_reads_no_value(
    family: str, dtype: str, grid: Grid, tmp_path: Path, no_content: FakeTensorMode
) -> None:
    write_family(tmp_path, family, vocab_size=212)
    config = read_config(tmp_path)
    for number in range(grid.ranks):
        shard = shard_of(config, grid, number)
        with no_content:
            rank = _rank(config, shard, dtype)
            for batch in BATCHES:
                size = (batch.new_tokens, config.hidden)
                incoming = None if shard.is_first else torch.empty(size, dtype=DTYPES[dtype], device=GPU)
                out = rank.run(batch, incoming)
                assert out.device == GPU
                assert out.shape == ((len(batch.rows), len(shard.part(config.vocab))) if shard.is_last else size)


def test_tokens_are_chosen_where_the_logits_are(no_content: FakeTensorMode) -> None:
    samplings = [
        Sampling(temperature=0.8, min_p=0.1, top_k=50, logit_bias=((3, 1.0),)),
        Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.2, presence_penalty=0.5),
    ]
    choices = [Choice.of(sampling, (1, 2), (3,), frozenset({4})) for sampling in samplings]
    with no_content:
        logits = torch.randn(2, 500, device=GPU)
        races = [times(seed, 0, runners(500)) for seed in range(2)]
        assert draw(distribution(adjusted(logits, choices), samplings), races).device == GPU


def test_reading_a_value_and_mixing_devices_are_noticed(no_content: FakeTensorMode) -> None:
    with no_content:
        with pytest.raises(DataDependentOutputException):
            torch.zeros(1, device=GPU).item()
        with pytest.raises(RuntimeError, match="two devices"):
            torch.zeros(1, device=GPU) + torch.zeros(1)
