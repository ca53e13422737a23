"""A step copies no more KV at once than is counted before anything is loaded, whatever its requests share."""

from dataclasses import replace
from typing import Final

import pytest
import torch
from distserve_testing.models import TinyLlama
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.blueprint import Blueprint, EngineConfig, blueprint_of, kv_shard, rank_layout
from distserve_worker.engine.execution.attention import StepAttention
from distserve_worker.engine.execution.batch import Batch, Prompt, Running, Written
from distserve_worker.engine.execution.tables import LaneTables
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.parallel import Grid
from distserve_worker.engine.work_memory import gathered_bytes

BLOCKS: Final = 60
CPU: Final = torch.device("cpu")
HEADS, KV_HEADS, HEAD_DIM = 6, 2, 8


class Watched(KvMemory):
    """Knows the most that was copied out of it at once, in bytes."""

    most = 0

    def gather(self, layer: int, rows: torch.Tensor) -> torch.Tensor:
        copied = super().gather(layer, rows)
        self.most = max(self.most, copied.nbytes)
        return copied


@pytest.fixture(scope="module")
def blueprint(tiny: TinyLlama) -> Blueprint:
    return replace(blueprint_of(EngineConfig("colocated", tiny.folder, 1 << 20)), blocks=BLOCKS)


def copied(blueprint: Blueprint, batch: Batch) -> int:
    """Bytes that a layer of the first rank copies at once."""
    layout = rank_layout(blueprint.layout, kv_shard(blueprint.shard(0)))
    memory = Watched(layout, blueprint.blocks, torch.float32, CPU)
    tables = LaneTables(CPU).take(batch.running) if batch.running is not None else None
    attention, count = StepAttention(memory, batch, tables), batch.new_tokens
    key = torch.zeros((count, KV_HEADS, HEAD_DIM))
    attention(0, torch.zeros((count, HEADS, HEAD_DIM)), key, key)
    return memory.most


def running(tables: list[tuple[int, ...]]) -> Batch:
    """Requests whose blocks are full but for one token."""
    tables = sorted(tables, key=len)
    seats = tuple(range(len(tables)))
    written = tuple(Written(seat, 0, table) for seat, table in zip(seats, tables, strict=True))
    return Batch((), Running(0, seats, written, (0,) * len(tables), tuple(16 * len(table) - 1 for table in tables)))


def test_a_prefix_that_many_share_is_not_copied_for_all_of_them_at_once(blueprint: Blueprint) -> None:
    """40 of them would copy 21 times the cache."""
    shared = tuple(range(30))
    batch = running([(*shared, 30 + index % 30) for index in range(40)])
    assert copied(blueprint, batch) <= gathered_bytes(blueprint, 0)


def test_padding_counts_where_nothing_is_shared(blueprint: Blueprint) -> None:
    """One of 20 blocks beside four of 10, in one call 1.7 times what they hold."""
    free = iter(range(BLOCKS))
    batch = running([tuple(next(free) for _ in range(blocks)) for blocks in (10, 10, 10, 10, 20)])
    assert copied(blueprint, batch) <= gathered_bytes(blueprint, 0)


def test_a_request_that_fills_the_cache_is_copied_as_a_whole(blueprint: Blueprint) -> None:
    whole = tuple(range(BLOCKS))
    prompt = Prompt((0,) * 5, 16 * BLOCKS - 5, whole, samples=True)
    for batch in (running([whole]), Batch((prompt,))):
        assert copied(blueprint, batch) == gathered_bytes(blueprint, 0)


TABLES = st.lists(
    st.lists(st.integers(0, BLOCKS - 1), min_size=1, max_size=BLOCKS, unique=True).map(tuple), min_size=1, max_size=40
)


@given(tables=TABLES)
def test_no_tables_make_a_step_copy_more_than_is_counted(blueprint: Blueprint, tables: list[tuple[int, ...]]) -> None:
    assert copied(blueprint, running(tables)) <= gathered_bytes(blueprint, 0)


def test_every_stage_counts_a_layer_of_its_own_part(blueprint: Blueprint) -> None:
    stages = replace(blueprint, config=replace(blueprint.config, grid=Grid(pp=2)))
    layer = gathered_bytes(blueprint, 0)
    assert [gathered_bytes(stages, rank) for rank in range(2)] == [layer, layer]
