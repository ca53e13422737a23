"""Every layer and head of a model is on the ranks that need it, and nowhere twice without reason."""

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.parallel import Grid, ParallelismInvalid, Shard, shard_of
from distserve_worker.weights.config import Activation, Architecture, ModelConfig

MODEL = ModelConfig(
    architecture=Architecture.OPT,
    layers=7,
    hidden=96,
    heads=12,
    kv_heads=12,
    head_dim=8,
    ffn=240,
    vocab=211,
    max_positions=256,
    norm_eps=1e-5,
    activation=Activation.RELU,
    tied_embeddings=True,
    eos_token_ids=frozenset(),
)


def _stages(config: ModelConfig, grid: Grid) -> list[list[Shard]]:
    """Ranks of each stage, both in order."""
    shards = [shard_of(config, grid, rank) for rank in range(grid.ranks)]
    return [
        sorted((shard for shard in shards if shard.stage == stage), key=lambda shard: shard.tensor_rank)
        for stage in range(grid.pp)
    ]


@given(tp=st.sampled_from([1, 2, 3, 4, 6, 12]), pp=st.integers(1, 7), kv_heads=st.sampled_from([1, 2, 4, 12]))
def test_ranks_have_all_of_a_model_together(tp: int, pp: int, kv_heads: int) -> None:
    config = replace(MODEL, kv_heads=kv_heads)
    if kv_heads % tp and tp % kv_heads:
        with pytest.raises(ParallelismInvalid):
            shard_of(config, Grid(tp, pp), 0)
        return
    stages = _stages(config, Grid(tp, pp))
    assert list(chain.from_iterable(stage[0].layers for stage in stages)) == list(range(7))
    assert max(len(stage[0].layers) for stage in stages) - min(len(stage[0].layers) for stage in stages) <= 1
    for number, stage in enumerate(stages):
        assert [shard.is_first for shard in stage] == [number == 0] * tp
        assert [shard.is_last for shard in stage] == [number == pp - 1] * tp
        assert {shard.layers for shard in stage} == {stage[0].layers}
        assert list(chain.from_iterable(shard.heads for shard in stage)) == list(range(12))
        assert list(chain.from_iterable(shard.part(211) for shard in stage)) == list(range(211))
        for shard in stage:
            shared = config.heads // kv_heads
            assert set(shard.kv_heads) == {head // shared for head in shard.heads}


@pytest.mark.parametrize(
    ("changes", "tp", "fitting"),
    [
        ({}, 5, "1, 2, 3, 4, 6, 12"),
        ({"kv_heads": 4}, 3, "1, 2, 4, 12"),
        ({"ffn": 250}, 4, "1, 2"),
        ({"heads": 9, "kv_heads": 3, "ffn": 1536}, 2, "1, 3"),  # SmolLM2
    ],
)
def test_a_number_of_ranks_that_does_not_divide_is_answered_with_those_that_do(
    changes: dict[str, Any], tp: int, fitting: str
) -> None:
    with pytest.raises(ParallelismInvalid, match=f"tp is {tp}, which does not divide .* tp can be {fitting}$"):
        shard_of(replace(MODEL, **changes), Grid(tp), 0)


@pytest.mark.parametrize(
    ("grid", "words"), [(Grid(0), "tp is 0"), (Grid(1, 0), "pp is 0"), (Grid(1, 8), "only 7 layers")]
)
def test_other_shapes_that_no_instance_can_have(grid: Grid, words: str) -> None:
    with pytest.raises(ParallelismInvalid, match=words):
        shard_of(MODEL, grid, 0)
