"""SmolLM2 on one and on three ranks: 3 KV heads, so that every rank of three has one of them."""

from pathlib import Path
from typing import Final

import pytest
import transformers
from distserve_testing.instances import Instance, Service
from distserve_testing.reference import require_greedy

from distserve_worker.engine.interface import Work
from distserve_worker.engine.parallel import WHOLE, Grid
from distserve_worker.text.loading import load_text

LENGTHS: Final = (1, 15, 16, 17, 48, 90)
TOKENS: Final = 24
TEXT: Final = Path(__file__).parents[2] / "LICENSE"
BLOCK_BYTES: Final = 30 * 2 * 3 * 16 * 64 * 4  # layers, K and V, heads, tokens, head_dim, FP32
BLOCKS: Final = 13  # where the prompts alone take 15 and all requests together 24
THREE: Final = Grid(3, 1)
GRIDS: Final = (WHOLE, THREE)
NAMES: Final = ("tp1", "tp3")


@pytest.fixture(scope="module")
def works(smollm2_path: Path) -> list[Work]:
    tokens = load_text(smollm2_path).tokenizer.encode(TEXT.read_text(), add_special_tokens=False)
    return [
        Work(str(number), tuple(tokens[50 * number : 50 * number + length]), max_tokens=TOKENS)
        for number, length in enumerate(LENGTHS)
    ]


@pytest.fixture(scope="module", params=GRIDS, ids=NAMES)
def prefill(request: pytest.FixtureRequest, smollm2_path: Path) -> Instance:
    return Instance("prefill", smollm2_path, 2 * BLOCKS * BLOCK_BYTES, request.param, max_model_length=128)


@pytest.mark.parametrize("grid", GRIDS, ids=NAMES)
def test_one_and_three_ranks_hand_over_to_each_other(
    prefill: Instance,
    grid: Grid,
    smollm2_path: Path,
    smollm2_reference: transformers.LlamaForCausalLM,
    works: list[Work],
) -> None:
    """B14, on too few blocks for all."""
    decode = Instance("decode", smollm2_path, BLOCKS * BLOCK_BYTES, grid, max_model_length=128)
    service = Service(prefill, decode)
    outputs = service.serve(works)
    assert service.put_back
    for work in works:
        assert len(outputs[work.request_id]) == TOKENS
        require_greedy(smollm2_reference, work.prompt, outputs[work.request_id])


def test_three_ranks_serve_both_phases(
    smollm2_path: Path, smollm2_reference: transformers.LlamaForCausalLM, works: list[Work]
) -> None:
    """B14, prompts in pieces."""
    instance = Instance("colocated", smollm2_path, BLOCKS * BLOCK_BYTES, THREE, max_model_length=128, chunk_tokens=40)
    outputs = instance.alone(works)
    for work in works:
        require_greedy(smollm2_reference, work.prompt, outputs[work.request_id])
