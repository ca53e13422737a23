"""What ranks compute on: which device each takes, whether it fits there, and that all devices compute the same."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from distserve_testing.devices import shared_device
from distserve_testing.instances import Instance, Service
from distserve_testing.models import TinyLlama, write_tiny_llama
from distserve_testing.workloads import GREEDY, GRIDS, NAMES

from distserve_worker.engine.blueprint import (
    Blueprint,
    ConfigurationInvalid,
    EngineConfig,
    ModelDoesNotFit,
    blueprint_of,
)
from distserve_worker.engine.building import build_rank
from distserve_worker.engine.devices import (
    cache_beside,
    device_of,
    memory_named,
    require_enough,
    require_gpus,
    require_room,
    rooms,
)
from distserve_worker.engine.execution.batch import Batch, Prompt, Running, Written
from distserve_worker.engine.interface import Sampling
from distserve_worker.engine.loading.inventory import weight_bytes
from distserve_worker.engine.parallel import WHOLE, Grid
from distserve_worker.engine.sampling.choice import Choice
from distserve_worker.engine.sampling.sampler import sample
from distserve_worker.engine.work_memory import work_bytes

BLOCK_BYTES: Final = 3 * 2 * 2 * 16 * 8 * 4
TOKENS: Final = tuple(range(1, 200, 3))

STEPS: Final = (
    Batch((Prompt(TOKENS, 0, tuple(range(5)), True), Prompt((3, 4, 5), 0, (5,), True)), None, (4, 5)),
    Batch(
        (Prompt((1, 2, 3), 16, (6, 7), True),),
        Running(0, (1, 0), (Written(0, 0, tuple(range(5))), Written(1, 0, (5,))), (5, 6), (3, len(TOKENS))),
    ),
    Batch((), Running(0, (1, 0), (), (5, 6), (4, len(TOKENS) + 1))),
)


def blueprint(tiny: TinyLlama, blocks: int = 64, **fields: Any) -> Blueprint:
    return blueprint_of(EngineConfig("colocated", tiny.folder, blocks * BLOCK_BYTES, **fields))


def room(blocks: int, grid: Grid) -> int:
    """Bytes of so many blocks on every rank; with two stages one has two of the three layers."""
    return blocks * BLOCK_BYTES * (4 if grid.pp == 2 else 3) // 3


def test_a_device_that_no_engine_knows_is_named(tiny: TinyLlama) -> None:
    with pytest.raises(ConfigurationInvalid, match="device is tpu, it must be one of cpu, cuda"):
        EngineConfig("decode", tiny.folder, BLOCK_BYTES, device="tpu")


def test_fewer_gpus_than_ranks_are_refused_in_numbers() -> None:
    require_enough(Grid(2, 2), 4, shared=False)
    require_enough(Grid(2, 2), 1, shared=True)
    with pytest.raises(ConfigurationInvalid, match=r"tp 2 x pp 2 are 4 ranks, .* sees 3: give it 4, or a smaller tp"):
        require_enough(Grid(2, 2), 3, shared=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_where_there_is_no_gpu_torch_says_why() -> None:
    with pytest.raises(ConfigurationInvalid, match=r"torch can use none here \(.+\): give the process a GPU"):
        require_gpus(WHOLE)


def test_every_rank_is_on_the_cpu_where_the_engine_is() -> None:
    assert {device_of("cpu", rank) for rank in range(4)} == {torch.device("cpu")}


@pytest.mark.parametrize("grid", GRIDS, ids=NAMES)
def test_each_rank_must_fit_on_its_gpu(tiny: TinyLlama, grid: Grid) -> None:
    plan = blueprint(tiny, grid=grid, device="cuda")
    for rank in range(grid.ranks):
        weights = weight_bytes(plan.model, plan.shard(rank), "FP32", "cuda")
        needed = weights + plan.rank_cache_bytes(rank) + work_bytes(plan, rank)
        require_room(plan, rank, needed)
        with pytest.raises(
            ModelDoesNotFit, match=rf"rank {rank} needs {weights} bytes .* its GPU has {needed - 1} free"
        ):
            require_room(plan, rank, needed - 1)


@pytest.mark.parametrize("grid", GRIDS, ids=NAMES)
@pytest.mark.parametrize("role", ["prefill", "decode", "colocated"])
def test_a_cache_takes_all_that_is_left_and_no_more(tiny: TinyLlama, grid: Grid, role: Any) -> None:
    config = replace(blueprint(tiny, grid=grid, device="cuda").config, role=role)
    free = [(3 << 30) + 300_000 * rank for rank in range(grid.ranks)]
    cache = cache_beside(config, free)
    plan = blueprint_of(replace(config, kv_cache_bytes=cache))
    for rank, available in enumerate(free):
        require_room(plan, rank, available)
    assert plan.max_model_length == plan.model.max_positions
    larger = blueprint_of(replace(config, kv_cache_bytes=cache + cache // 50))
    assert any(_is_refused(larger, rank, available) for rank, available in enumerate(free))


def _is_refused(plan: Blueprint, rank: int, available: int) -> bool:
    try:
        require_room(plan, rank, available)
    except ModelDoesNotFit:
        return True
    return False


@pytest.mark.parametrize("grid", [WHOLE, Grid(2)], ids=["one-rank", "two-ranks-on-one-gpu"])
def test_what_ranks_may_use_of_their_gpu_is_there(grid: Grid) -> None:
    with shared_device("cuda"):
        room, *_ = rooms(grid)
        free, total = torch.cuda.mem_get_info(0)
    assert total * 0.9 / grid.ranks < room <= free / grid.ranks


def test_a_gpu_without_room_for_a_cache_is_told_with_its_numbers(tiny: TinyLlama) -> None:
    config = blueprint(tiny, device="cuda").config
    with pytest.raises(ModelDoesNotFit, match=r"rank 0 needs \d+ bytes for weights in FP32, 0 for its part"):
        cache_beside(config, [1 << 20])


def test_a_step_without_memory_says_what_to_do_about_it() -> None:
    text = "a step needs more memory than is left .*1 TiB.* take a smaller cache"
    with pytest.raises(ModelDoesNotFit, match=text), memory_named():
        raise torch.OutOfMemoryError("tried to allocate 1 TiB")


def test_the_ranks_of_an_instance_share_its_cache(tiny: TinyLlama) -> None:
    whole = blueprint(tiny)
    assert whole.rank_cache_bytes(0) == 64 * BLOCK_BYTES
    halves = blueprint(tiny, grid=Grid(2))
    assert halves.rank_cache_bytes(0) == halves.rank_cache_bytes(1) == 32 * BLOCK_BYTES


def test_only_a_cpu_keeps_a_second_copy_of_a_tied_table(tmp_path: Path) -> None:
    plan = blueprint(TinyLlama(tmp_path, write_tiny_llama(tmp_path, tie_word_embeddings=True)))
    on_cpu, on_gpu = (weight_bytes(plan.model, plan.shard(0), "FP32", device) for device in ("cpu", "cuda"))
    assert on_cpu - on_gpu == plan.model.vocab * plan.model.hidden * 4


@pytest.fixture(scope="module")
def expected(tiny: TinyLlama) -> dict[str, list[int]]:
    return {work.request_id: tiny.greedy(work.prompt, work.max_tokens or 0) for work in GREEDY}


@pytest.mark.parametrize("grid", GRIDS, ids=NAMES)
def test_greedy_text_is_that_of_transformers_on_any_device(
    device: str, grid: Grid, tiny: TinyLlama, expected: dict[str, list[int]]
) -> None:
    """B14: prompts are in pieces, requests are put back for want of blocks, and prefixes are found."""
    few = {"chunk_tokens": 11, "max_model_length": 96}
    instance = Instance("colocated", tiny.folder, room(8, grid), grid, device=device, **few)
    assert {region.memory.device.type for region in instance.regions} == {device}
    assert instance.alone(GREEDY) == expected
    assert instance.alone(GREEDY) == expected


@pytest.mark.parametrize("decode", [Grid(1, 2), Grid(2, 1)], ids=["to-pp2", "to-tp2"])
@pytest.mark.parametrize("prefill", [Grid(2, 1), Grid(1, 2)], ids=["from-tp2", "from-pp2"])
def test_kv_is_handed_over_on_any_device(
    device: str, prefill: Grid, decode: Grid, tiny: TinyLlama, expected: dict[str, list[int]]
) -> None:
    """B14."""
    sides = [
        Instance(role, tiny.folder, room(blocks, grid), grid, device=device, max_model_length=96)
        for role, grid, blocks in (("prefill", prefill, 64), ("decode", decode, 6))
    ]
    service = Service(*sides)
    assert service.serve(GREEDY) == expected
    assert service.put_back
    assert service.cached_tokens >= 32


@pytest.mark.parametrize(("dtype", "most"), [("FP32", 1e-4), ("FP16", 0.01), ("BF16", 0.05), ("INT8", 0.1)])
def test_logits_are_near_those_of_transformers_on_any_device(
    device: str, dtype: str, most: float, tiny: TinyLlama
) -> None:
    rank = build_rank(blueprint(tiny, dtype=dtype, device=device), 0).rank
    logits = rank.run(Batch((Prompt(TOKENS, 0, tuple(range(5)), samples=True),)))
    assert logits.device.type == device
    with torch.inference_mode():
        exact = tiny.reference(torch.tensor([TOKENS])).logits[0, -1].float()
    assert float((logits[0].cpu() - exact).square().mean().sqrt() / exact.std()) < most


@pytest.fixture
def no_waiting() -> Iterator[Callable[[], None]]:
    """Once it is called torch refuses whatever makes the host wait for a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("cuda needs a machine with a GPU")
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", ["FP32", "BF16", "INT8"])
def test_no_step_waits_for_cuda(tiny: TinyLlama, dtype: str, no_waiting: Callable[[], None]) -> None:
    """The second time: what is used for the first time may be loaded first."""
    rank = build_rank(blueprint(tiny, dtype=dtype, device="cuda"), 0).rank
    for _ in range(2):
        for batch in STEPS:
            rank.run(batch)
        no_waiting()


def test_tokens_are_drawn_alike_on_any_device(device: str) -> None:
    logits = torch.randn(6, 5000, generator=torch.Generator().manual_seed(3))
    samplings = [
        Sampling(),
        Sampling(temperature=1.0, seed=7),
        Sampling(temperature=0.7, top_p=0.9, seed=8),
        Sampling(temperature=1.3, top_k=40, min_p=0.01, seed=9),
        Sampling(temperature=1.0, repetition_penalty=1.2, presence_penalty=0.5, logit_bias=((3, 2.0),), seed=10),
        Sampling(temperature=1.0, logprobs=3, seed=11),
    ]
    choices = [Choice.of(sampling, (1, 2, 3), (4,), frozenset()) for sampling in samplings]
    there, here = sample(logits.to(device), choices), sample(logits, choices)
    assert [row and row.token for row in there] == [row and row.token for row in here]
