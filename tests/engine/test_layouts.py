"""The text does not depend on how the two sides cut the model, nor on blocks that run out or are found."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from distserve_testing.instances import Instance, Service
from distserve_testing.models import TinyLlama, write_tiny_llama
from distserve_testing.workloads import GREEDY, GRIDS, NAMES

from distserve_worker.engine.interface import Sampling, Work
from distserve_worker.engine.parallel import Grid

HEADS: Final = 12
KV_HEADS: Final = (1, 2, 4, 12)
LAYERS: Final = 3  # stages of different sizes
HEAD_DIM: Final = 8

WORKS: Final = (
    *GREEDY,
    Work("drawn", tuple(range(30, 60)), max_tokens=14, sampling=Sampling(temperature=1.0, top_p=0.9, seed=5)),
)


def room(kv_heads: int, blocks: int, grid: Grid) -> int:
    """Bytes of so many blocks on every rank."""
    stage, heads = -(-LAYERS // grid.pp), max(1, kv_heads // grid.tp)
    return blocks * grid.ranks * stage * 2 * heads * 16 * HEAD_DIM * 4


@pytest.fixture(scope="module", params=KV_HEADS, ids=[f"{count}-kv-heads" for count in KV_HEADS])
def kv_heads(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture(scope="module")
def model(kv_heads: int, tmp_path_factory: pytest.TempPathFactory) -> TinyLlama:
    folder = tmp_path_factory.mktemp("twelve-heads")
    sizes: dict[str, Any] = {"hidden_size": HEADS * HEAD_DIM, "intermediate_size": 64, "num_hidden_layers": LAYERS}
    return TinyLlama(folder, write_tiny_llama(folder, num_attention_heads=HEADS, num_key_value_heads=kv_heads, **sizes))


@pytest.fixture(scope="module")
def build(model: TinyLlama, kv_heads: int) -> Callable[..., Instance]:
    def make(role: str, grid: Grid, blocks: int = 64, **fields: int) -> Instance:
        return Instance(role, model.folder, room(kv_heads, blocks, grid), grid, **fields)

    return make


@pytest.fixture(scope="module")
def expected(model: TinyLlama, build: Callable[..., Instance]) -> dict[str, list[int]]:
    """From one process; greedy text is transformers' too."""
    outputs = build("colocated", Grid()).alone(WORKS)
    for work in WORKS:
        if work.request_id != "drawn":
            assert outputs[work.request_id] == model.greedy(work.prompt, work.max_tokens or 0)
    return outputs


@pytest.fixture(scope="module")
def prefills(build: Callable[..., Instance]) -> dict[Grid, Instance]:
    return {grid: build("prefill", grid) for grid in GRIDS}


@pytest.fixture(scope="module")
def decodes(build: Callable[..., Instance]) -> dict[Grid, Instance]:
    """With 8 blocks, where all requests together come to 12."""
    return {grid: build("decode", grid, blocks=8) for grid in GRIDS}


@pytest.mark.parametrize("decode", GRIDS, ids=[f"to-{name}" for name in NAMES])
@pytest.mark.parametrize("prefill", GRIDS, ids=[f"from-{name}" for name in NAMES])
def test_any_layout_hands_over_to_any_other(
    prefill: Grid,
    decode: Grid,
    prefills: dict[Grid, Instance],
    decodes: dict[Grid, Instance],
    expected: dict[str, list[int]],
) -> None:
    """B14; the prompts that come a second time are found, and the youngest is put back for want of blocks."""
    for cached in (False, True):
        service = Service(prefills[prefill], decodes[decode])
        salt = f"{decode}" if cached else f"{decode} first"
        if cached:
            service.serve(
                Work(f"before {work.request_id}", work.prompt, max_tokens=1, prefix_salt=salt) for work in WORKS
            )
            service = Service(prefills[prefill], decodes[decode])
        works = [Work(w.request_id, w.prompt, (), w.sampling, w.stop_token_ids, w.max_tokens, salt) for w in WORKS]
        assert service.serve(works) == expected
        assert service.put_back
        assert service.cached_tokens >= (32 if cached else 0)
        for side in (prefills[prefill], decodes[decode]):
            load = side.engine.load()
            assert load.free_blocks == load.total_blocks


@pytest.mark.parametrize("chunk", [None, 11], ids=["whole-prompts", "pieces"])
@pytest.mark.parametrize("grid", GRIDS, ids=NAMES)
def test_a_colocated_instance_says_the_same_in_any_layout(
    grid: Grid, chunk: int | None, build: Callable[..., Instance], expected: dict[str, list[int]]
) -> None:
    instance = build("colocated", grid, blocks=8, **({} if chunk is None else {"chunk_tokens": chunk}))
    assert instance.alone(WORKS) == expected
    load = instance.engine.load()
    assert load.free_blocks == load.total_blocks
