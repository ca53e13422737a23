"""The prefill engine: first tokens, parked KV, and what is left after each way of ending."""

import math
import shutil
from pathlib import Path

import pytest
import torch
from distserve_testing.engines import EngineMaker, prefilled, steps
from distserve_testing.models import TinyLlama
from safetensors.torch import load_file, save_file

from distserve_worker.engine.blueprint import EngineConfig
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.interface import (
    BlockRef,
    Dropped,
    FinishReason,
    Load,
    Parked,
    QueueFull,
    Refused,
    StaleBlocks,
    Started,
    Token,
    TooLong,
    Work,
)

PROMPT = tuple(range(10, 30))


def test_a_prompt_gives_its_first_token_and_parks_its_kv(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    engine = make_engine("prefill")
    engine.admit(Work("r", PROMPT))
    started, token, parked = steps(engine)
    assert started == Started("r", cached_tokens=0)
    assert token == Token("r", tiny.greedy(PROMPT, 1)[0])
    assert isinstance(parked, Parked)
    assert (parked.tokens, len(parked.blocks)) == (20, 2)
    assert engine.load() == Load(queued_tokens=0, waiting=0, running=0, free_blocks=62, total_blocks=64, parked=1)


def test_prompts_of_a_batch_do_not_see_each_other(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    engine = make_engine("prefill")
    prompts = [PROMPT[:count] for count in (1, 16, 7, 20)]
    done, _ = prefilled(engine, [Work(str(number), prompt) for number, prompt in enumerate(prompts)])
    firsts = [done[str(number)].output for number in range(4)]
    assert firsts == [tuple(tiny.greedy(prompt, 1)) for prompt in prompts]


def test_a_resumed_request_is_prefilled_over_its_output_too(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    engine = make_engine("prefill")
    expected = tiny.greedy(PROMPT, 4)
    engine.admit(Work("r", PROMPT, output=tuple(expected[:3])))
    _, token, parked = steps(engine)
    assert token == Token("r", expected[3])
    assert isinstance(parked, Parked)
    assert parked.tokens == 23


def test_one_token_asked_for_ends_after_prefill(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    """B9."""
    engine = make_engine("prefill")
    engine.admit(Work("r", PROMPT, max_tokens=1))
    assert list(steps(engine))[1:] == [Token("r", tiny.greedy(PROMPT, 1)[0], FinishReason.LENGTH)]
    assert engine.load().free_blocks == 64


def test_a_stop_at_the_first_token_ends_after_prefill(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    """B9."""
    engine = make_engine("prefill")
    (first,) = tiny.greedy(PROMPT, 1)
    engine.admit(Work("r", PROMPT, stop_token_ids=frozenset({first})))
    assert list(steps(engine))[1:] == [Token("r", first, FinishReason.STOP)]
    assert (engine.load().free_blocks, engine.load().parked) == (64, 0)


def test_batches_take_up_to_l_m_tokens_and_a_long_prompt_alone(make_engine: EngineMaker) -> None:
    engine = make_engine("prefill", max_batch_tokens=30)
    for request_id, length in [("a", 10), ("b", 20), ("c", 60), ("d", 5)]:
        engine.admit(Work(request_id, (1,) * length))
    assert engine.load().queued_tokens == 95
    batches = []
    while engine.has_work():
        batches.append([happening.request_id for happening in engine.step() if isinstance(happening, Token)])
    assert batches == [["a", "b"], ["c"], ["d"]]


def test_parked_kv_makes_the_next_prompt_wait_until_it_is_released(make_engine: EngineMaker) -> None:
    engine = make_engine("prefill", blocks=3, max_batch_tokens=20)
    engine.admit(Work("first", PROMPT))
    engine.admit(Work("second", (5, *PROMPT)))
    assert {happening.request_id for happening in steps(engine)} == {"first"}
    assert not engine.has_work()
    assert engine.step() == ()
    engine.release("first")
    assert {happening.request_id for happening in steps(engine)} == {"second"}


def test_what_is_pinned_stays_until_the_last_unpin(make_engine: EngineMaker) -> None:
    engine = make_engine("prefill")
    _, parked = prefilled(engine, [Work("r", PROMPT)])
    for _ in range(2):
        engine.export("r", parked["r"].blocks)
    indices = [block.index for block in parked["r"].blocks]
    content = engine.region.memory[indices].clone()
    engine.release("r")
    engine.unpin("r")
    assert engine.load().free_blocks == 62
    prefilled(engine, [Work(f"other{number}", (number, *PROMPT)) for number in range(31)])
    assert torch.equal(engine.region.memory[indices], content)
    engine.unpin("r")
    assert engine.load().free_blocks == 2


def test_blocks_that_were_freed_and_reused_are_never_exported(make_engine: EngineMaker) -> None:
    """B7."""
    engine = make_engine("prefill", blocks=2)
    _, first = prefilled(engine, [Work("first", PROMPT)])
    engine.release("first")
    _, second = prefilled(engine, [Work("second", (5, *PROMPT))])
    stale, fresh = first["first"].blocks, second["second"].blocks
    assert {block.index for block in stale} == {block.index for block in fresh}
    for request_id, blocks in [("first", stale), ("second", stale), ("first", fresh), ("second", (BlockRef(5, 0),))]:
        with pytest.raises(StaleBlocks):
            engine.export(request_id, blocks)
    engine.export("second", fresh)


def test_released_kv_is_not_exported_even_while_it_is_pinned(make_engine: EngineMaker) -> None:
    engine = make_engine("prefill")
    _, parked = prefilled(engine, [Work("r", PROMPT)])
    engine.export("r", parked["r"].blocks)
    engine.release("r")
    with pytest.raises(StaleBlocks, match="request r is not parked here"):
        engine.export("r", parked["r"].blocks)


def test_the_unused_end_of_the_last_block_holds_nothing_of_its_earlier_owner(make_engine: EngineMaker) -> None:
    engine = make_engine("prefill", blocks=1)
    prefilled(engine, [Work("first", (7,) * 15)])
    engine.release("first")
    _, parked = prefilled(engine, [Work("second", (7,) * 3)])
    (block,) = parked["second"].blocks
    tokens = engine.region.memory[block.index].view(torch.float32).view(3 * 2 * 2, 16, 8)
    assert tokens[:, :3].all()
    assert not tokens[:, 3:].any()


def test_a_beginning_that_was_computed_before_is_found(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    engine = make_engine("prefill")
    prompts = {"first": PROMPT, "again": PROMPT, "longer": (*PROMPT[:16], 3, 4, 5)}
    for request_id, prompt in prompts.items():
        engine.admit(Work(request_id, prompt))
        started, token, _ = steps(engine)
        assert started == Started(request_id, cached_tokens=0 if request_id == "first" else 16)
        assert token == Token(request_id, tiny.greedy(prompt, 1)[0])
    assert engine.load().free_blocks == 64 - 4, "the first block is held once by all"
    for request_id in prompts:
        engine.release(request_id)
    engine.admit(Work("elsewhere", PROMPT, prefix_salt="another key"))
    assert next(iter(steps(engine))) == Started("elsewhere", cached_tokens=0)


def test_a_prompt_in_pieces_says_the_same(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    engine = make_engine("prefill", chunk_tokens=7)
    prompts = [PROMPT[:count] for count in (3, 20, 16, 1)]
    done, _ = prefilled(engine, [Work(str(number), prompt) for number, prompt in enumerate(prompts)])
    assert [done[str(number)].output for number in range(4)] == [tuple(tiny.greedy(prompt, 1)) for prompt in prompts]


def test_a_prompt_whose_logits_are_not_finite_fails_alone(tiny: TinyLlama, tmp_path: Path) -> None:
    shutil.copytree(tiny.folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.embed_tokens.weight"][200] = math.nan
    save_file(weights, tmp_path / "model.safetensors")
    engine = build_engine(EngineConfig("prefill", tmp_path, 1_000_000))
    for request_id, last in [("well", 7), ("ill", 200), ("fine", 8)]:
        engine.admit(Work(request_id, (*PROMPT, last)))
    happenings = list(steps(engine))
    assert [happening.request_id for happening in happenings if isinstance(happening, Parked)] == ["well", "fine"]
    assert [happening for happening in happenings if isinstance(happening, Dropped)] == [
        Dropped("ill", "the model's logits are not finite (NaN or infinity)")
    ]
    assert engine.load().parked == 2
    assert Token("well", tiny.greedy((*PROMPT, 7), 1)[0]) in happenings


def test_a_request_can_be_cancelled_while_it_waits_and_while_it_is_parked(make_engine: EngineMaker) -> None:
    """B5."""
    engine = make_engine("prefill")
    prefilled(engine, [Work("parked", PROMPT)])
    engine.admit(Work("waiting", PROMPT))
    for request_id in ("parked", "waiting", "unknown"):
        engine.cancel(request_id)
    assert engine.load() == Load(queued_tokens=0, waiting=0, running=0, free_blocks=64, total_blocks=64, parked=0)
    assert not engine.has_work()


def test_an_id_is_not_taken_twice_while_it_holds_anything(make_engine: EngineMaker) -> None:
    engine = make_engine("prefill")
    _, parked = prefilled(engine, [Work("r", PROMPT)])
    with pytest.raises(Refused, match="request r is here already"):
        engine.admit(Work("r", PROMPT))
    engine.export("r", parked["r"].blocks)
    engine.cancel("r")
    with pytest.raises(Refused, match="request r is here already"):
        engine.admit(Work("r", PROMPT))
    engine.unpin("r")
    engine.admit(Work("r", PROMPT))


def test_a_full_queue_takes_no_more(make_engine: EngineMaker) -> None:
    engine = make_engine("prefill", max_waiting=1)
    engine.admit(Work("a", PROMPT))
    with pytest.raises(QueueFull):
        engine.admit(Work("b", PROMPT))
    assert engine.load().waiting == 1
    assert {happening.request_id for happening in steps(engine)} == {"a"}


def test_what_never_fits_is_refused(make_engine: EngineMaker) -> None:
    engine = make_engine("prefill", max_model_length=24)
    with pytest.raises(TooLong, match="the limit for both together is 24"):
        engine.admit(Work("r", PROMPT, max_tokens=5))
    engine.admit(Work("r", PROMPT, max_tokens=4))


def test_nothing_is_ever_imported_here(make_engine: EngineMaker) -> None:
    engine = make_engine("prefill")
    prefilled(engine, [Work("r", PROMPT)])
    engine.imported("r")
    with pytest.raises(StaleBlocks, match="request r is not reserved here"):
        engine.import_target("r")
    assert engine.load().parked == 1
