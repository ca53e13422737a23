"""A request that is prefilled on one engine and decoded on another gets the text that one process gives it."""

from dataclasses import replace

import pytest
from distserve_testing.engines import EngineMaker, copy_kv, generate, prefilled
from distserve_testing.models import TinyLlama

from distserve_worker.engine.interface import Sampling, StaleBlocks, Work

PROMPTS = [tuple(range(3 * length, 4 * length)) for length in (1, 15, 16, 50)]
LONG = tuple(place % 190 for place in range(230))  # many times the others' lengths


def test_greedy_text_equals_that_of_one_process(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    """B14, for equal layouts."""
    prompts = [LONG, *PROMPTS]
    works = [Work(str(number), prompt, max_tokens=20) for number, prompt in enumerate(prompts)]
    outputs = generate(make_engine("prefill"), make_engine("decode"), works)
    assert outputs == {str(number): tiny.greedy(prompt, 20) for number, prompt in enumerate(prompts)}


def test_sampled_text_does_not_depend_on_the_batch(make_engine: EngineMaker) -> None:
    sampling = Sampling(temperature=1.2, top_p=0.95, top_k=50)
    works = [
        Work(str(number), prompt, max_tokens=20, sampling=replace(sampling, seed=number))
        for number, prompt in enumerate(PROMPTS)
    ]
    together = generate(make_engine("prefill"), make_engine("decode"), works)
    alone: dict[str, list[int]] = {}
    for work in works:
        alone |= generate(make_engine("prefill"), make_engine("decode"), [work])
    assert together == alone
    other_seed = generate(make_engine("prefill"), make_engine("decode"), [replace(works[1], sampling=sampling)])
    assert other_seed["1"] != together["1"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_request_that_moves_to_another_pair_goes_on_at_the_next_token(
    make_engine: EngineMaker, temperature: float
) -> None:
    """B13: limits and the position in the random stream carry over."""
    work = Work("r", PROMPTS[3], max_tokens=24, sampling=Sampling(temperature, seed=11))
    whole = generate(make_engine("prefill"), make_engine("decode"), [work])["r"]
    for known in (1, 9, 23):
        resumed = replace(work, output=tuple(whole[:known]))
        assert generate(make_engine("prefill"), make_engine("decode"), [resumed])["r"] == whole


def test_engines_in_half_precision_hand_over_too(make_engine: EngineMaker) -> None:
    prefill, decode = make_engine("prefill", dtype="BF16"), make_engine("decode", dtype="BF16")
    works = [Work(str(number), prompt, max_tokens=20) for number, prompt in enumerate(PROMPTS)]
    outputs = generate(prefill, decode, works)
    assert {len(output) for output in outputs.values()} == {20}
    for engine in (prefill, decode):
        assert engine.load().free_blocks == engine.load().total_blocks


def test_a_handle_of_another_request_is_refused(make_engine: EngineMaker) -> None:
    """B7."""
    prefill, decode = make_engine("prefill"), make_engine("decode")
    done, parked = prefilled(prefill, [Work("mine", PROMPTS[3]), Work("yours", PROMPTS[2])])
    decode.admit(done["mine"])
    decode.step()
    with pytest.raises(StaleBlocks):
        copy_kv(prefill, decode, replace(parked["mine"], blocks=parked["yours"].blocks))
    assert prefill.load().parked == 2
