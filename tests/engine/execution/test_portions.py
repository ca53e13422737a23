"""A batch that is computed in portions comes to what it comes to as a whole."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from distserve_testing.models import TinyLlama
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.blueprint import EngineConfig, blueprint_of, kv_shard, rank_layout
from distserve_worker.engine.execution.batch import Batch, Prompt, Running, Written
from distserve_worker.engine.execution.portions import StepBounds, portions
from distserve_worker.engine.execution.rank import Rank
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.loading.loading_model import load_model
from distserve_worker.engine.parallel import Grid

CPU = torch.device("cpu")
RUNNING = Running(0, (0,), (Written(0, 0, (0,)),), (5,), (7,))
PROMPTS = st.lists(
    st.builds(
        Prompt,
        st.lists(st.integers(0, 99), min_size=1, max_size=40).map(tuple),
        st.integers(0, 50),
        st.just((1, 2)),
        st.booleans(),
    ),
    max_size=6,
).map(tuple)


@given(prompts=PROMPTS, running=st.sampled_from([None, RUNNING]), tokens=st.integers(1, 50))
def test_portions_are_the_batch_in_its_order(prompts: tuple[Prompt, ...], running: Running | None, tokens: int) -> None:
    batch = Batch(prompts, running, (3,))
    if not batch.new_tokens:
        return
    parts = list(portions(batch, tokens))
    assert [token for part in parts for prompt in part.prompts for token in prompt.tokens] == [
        token for prompt in prompts for token in prompt.tokens
    ]
    firsts = [sum(part.new_tokens for part in parts[:index]) for index in range(len(parts))]
    assert [first + row for first, part in zip(firsts, parts, strict=True) for row in part.rows] == batch.rows
    assert [part.running for part in parts] == [None] * (len(parts) - 1) + [running]
    assert all(part.new_tokens and not part.cleared for part in parts)
    assert all(sum(len(prompt.tokens) for prompt in part.prompts) <= tokens for part in parts)


@given(prompts=PROMPTS, tokens=st.integers(40, 99))
def test_only_a_prompt_that_is_longer_than_a_portion_is_cut(prompts: tuple[Prompt, ...], tokens: int) -> None:
    assert tuple(prompt for part in portions(Batch(prompts, RUNNING), tokens) for prompt in part.prompts) == prompts


def test_a_batch_is_one_portion_where_nothing_bounds_it() -> None:
    batch = Batch((Prompt(tuple(range(9999)), 0, (1, 2), True),), RUNNING)
    assert list(portions(batch, None)) == list(portions(batch, 9999)) == [batch]


@pytest.fixture(scope="module")
def make_stages(tiny: TinyLlama) -> Callable[[Grid, StepBounds], list[Rank]]:
    """The stages of an instance, the first one first, whose memory holds what is not a number."""

    def make(grid: Grid, bounds: StepBounds) -> list[Rank]:
        blueprint = blueprint_of(EngineConfig("colocated", tiny.folder, 1 << 20, grid=grid))
        ranks = []
        for rank in reversed(range(grid.ranks)):
            shard = blueprint.shard(rank)
            loaded = load_model(tiny.folder, blueprint.model, "FP32", CPU, shard=shard)
            memory = KvMemory(rank_layout(blueprint.layout, kv_shard(shard)), 40, torch.float32, CPU)
            memory.blocks.fill_(torch.nan)
            ranks.append(Rank(shard, loaded.model, memory, bounds))
        return ranks

    return make


def outputs(stages: list[Rank], batch: Batch) -> torch.Tensor:
    out = None
    for stage in stages:
        out = stage.run(batch, out)
    assert out is not None
    return out


@pytest.mark.parametrize("grid", [Grid(), Grid(pp=2)], ids=str)
def test_logits_and_what_is_stored_are_those_of_the_whole(
    make_stages: Callable[[Grid, StepBounds], list[Rank]], grid: Grid
) -> None:
    """Prompts in several portions, after what is stored already, beside a running request."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, 200, (200,), generator=draw).tolist()
    first = Prompt(tuple(tokens[:100]), 0, tuple(range(10)), samples=True)
    second, short = (
        Prompt(tuple(tokens[100:170]), 0, tuple(range(10, 18)), samples=False),
        Prompt(tuple(tokens[10:20]), 0, (30,), samples=True),
    )
    rest = Prompt(tuple(tokens[170:190]), 70, second.table, samples=True)
    running = Running(0, (0,), (Written(0, 0, first.table),), (7,), (100,))
    batches = (Batch((second, first), None, (14, 6)), Batch((rest, short), running, (17, 30)))
    whole, portioned = make_stages(grid, StepBounds()), make_stages(grid, StepBounds(tokens=16))
    for batch in batches:
        torch.testing.assert_close(outputs(portioned, batch), outputs(whole, batch), rtol=1e-4, atol=1e-5)
    held = [*first.table[:6], *second.table[:5]]
    for one, other in zip(portioned, whole, strict=True):
        torch.testing.assert_close(one.memory.blocks[held], other.memory.blocks[held], rtol=1e-4, atol=1e-5)


def test_pieces_of_which_none_samples_have_no_logits(
    make_stages: Callable[[Grid, StepBounds], list[Rank]],
) -> None:
    (rank,) = make_stages(Grid(), StepBounds(tokens=16))
    prompt = Prompt(tuple(range(50)), 0, (0, 1, 2, 3), samples=False)
    assert len(rank.run(Batch((prompt,), None, (3,)))) == 0
    assert len(rank.run(Batch((replace(prompt, samples=True),)))) == 1
