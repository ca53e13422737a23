"""From a checked body to what the workers are asked for."""

import json
from typing import Any

import pytest

from distserve_worker.gateway.api.bodies import CompletionBody
from distserve_worker.gateway.api.preparing import check_length, generations
from distserve_worker.gateway.api.reading import read_completion
from distserve_worker.gateway.errors import ApiError
from distserve_worker.gateway.generation import Generation
from distserve_worker.text.tokenizer import ModelText


def _body(**fields: Any) -> CompletionBody:
    return read_completion(json.dumps({"model": "m", "prompt": "hi"} | fields).encode())


def _generations(text: ModelText, **fields: Any) -> tuple[Generation, ...]:
    return generations("id", _body(**fields), (5,), text.tokenizer, "salt")


def _generation(text: ModelText, **fields: Any) -> Generation:
    return _generations(text, **fields)[0]


def test_defaults_are_those_of_openai(smollm2_text: ModelText) -> None:
    """B9: no limit means no limit."""
    job = _generation(smollm2_text)
    assert (job.sampling.temperature, job.sampling.top_p, job.sampling.top_k, job.max_tokens) == (1, 1, 0, None)
    assert job.stop_token_ids == smollm2_text.tokenizer.stop_token_ids
    assert (job.sampling.repetition_penalty, job.sampling.min_p, job.sampling.min_tokens) == (1, 0, 0)
    assert not job.sampling.HasField("logprobs")


def test_requests_without_a_seed_get_different_ones(smollm2_text: ModelText) -> None:
    assert _generation(smollm2_text).sampling.seed != _generation(smollm2_text).sampling.seed


@pytest.mark.parametrize(("seed", "sent"), [(0, 0), (-1, 2**64 - 1), (2**63 - 1, 2**63 - 1), (-(2**63), 2**63)])
def test_every_seed_of_the_api_has_its_own_seed_on_the_wire(smollm2_text: ModelText, seed: int, sent: int) -> None:
    assert _generation(smollm2_text, seed=seed).sampling.seed == sent


@pytest.mark.parametrize(("top_k", "sent"), [(None, 0), (-1, 0), (0, 0), (7, 7), (10**9, 49152)])
def test_top_k_is_all_tokens_or_at_most_all(smollm2_text: ModelText, top_k: int | None, sent: int) -> None:
    assert _generation(smollm2_text, top_k=top_k).sampling.top_k == sent


@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p"])
@pytest.mark.parametrize("value", [5e-324, 1e-46, 0.1])
def test_every_float_of_the_api_reaches_the_wire_as_it_is(smollm2_text: ModelText, field: str, value: float) -> None:
    """A value that is rounded to 0 on the way would be refused by the worker."""
    assert getattr(_generation(smollm2_text, **{field: value}).sampling, field) == value


def test_load_tests_can_ask_for_an_exact_length(smollm2_text: ModelText) -> None:
    assert _generation(smollm2_text, ignore_eos=True).stop_token_ids == frozenset()
    assert _generation(smollm2_text, ignore_eos=True, stop_token_ids=[7]).stop_token_ids == {7}


def test_stop_tokens_of_a_request_come_on_top_of_the_models(smollm2_text: ModelText) -> None:
    stops = _generation(smollm2_text, stop_token_ids=[7, 9]).stop_token_ids
    assert stops == smollm2_text.tokenizer.stop_token_ids | {7, 9}


def test_every_choice_has_an_id_and_a_seed_of_its_own(smollm2_text: ModelText) -> None:
    jobs = _generations(smollm2_text, n=3, seed=-2)
    assert [job.sampling.seed for job in jobs] == [2**64 - 2, 2**64 - 1, 0]
    assert [job.request_id for job in jobs] == ["id", "id-1", "id-2"]
    assert len({job.sampling.seed for job in _generations(smollm2_text, n=9)}) == 9


def test_what_a_client_asks_of_sampling_reaches_the_wire(smollm2_text: ModelText) -> None:
    asked = {
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "presence_penalty": -2.0,
        "frequency_penalty": 0.25,
        "logit_bias": {"5": -100, "49151": 1.5},
        "min_tokens": 3,
        "logprobs": 0,
    }
    sampling = _generation(smollm2_text, **asked).sampling
    sent = {name: getattr(sampling, name) for name in asked} | {"logit_bias": dict(sampling.logit_bias)}
    assert sent == asked | {"logit_bias": {5: -100.0, 49151: 1.5}}
    assert sampling.HasField("logprobs")


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"stop_token_ids": [5, 49152]}, "stop_token_ids[1]"), ({"logit_bias": {"49152": 1}}, "logit_bias")],
)
def test_tokens_that_the_model_does_not_have_are_refused(
    smollm2_text: ModelText, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError, match="the vocabulary has 49152 tokens, got 49152") as error:
        _generation(smollm2_text, **fields)
    assert (error.value.problem.status, error.value.problem.param) == (400, param)


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "param", "numbers"),
    [
        (10, None, "prompt", "at most 10 tokens per request, but 11 are needed"),
        (10, 1, "prompt", "but 11 are needed: 10 in the prompt and 1 to produce"),
        (5, 6, "max_tokens", "but 11 are needed: 5 in the prompt and 6 to produce"),
        (5, 2**31 - 1, "max_tokens", "5 in the prompt"),
    ],
)
def test_what_the_fleet_cannot_hold_is_refused_with_the_numbers(
    tokens: int, max_tokens: int | None, param: str, numbers: str
) -> None:
    """B4."""
    with pytest.raises(ApiError, match=numbers) as error:
        check_length(_body(max_tokens=max_tokens), (1,) * tokens, "prompt", 10)
    assert (error.value.problem.param, error.value.problem.code) == (param, "context_length_exceeded")


def test_a_least_length_that_the_fleet_cannot_hold_is_refused() -> None:
    """B4."""
    check_length(_body(min_tokens=5), (1,) * 5, "prompt", 10)
    with pytest.raises(ApiError, match="but 11 are needed: 5 in the prompt and 6 to produce") as error:
        check_length(_body(min_tokens=6), (1,) * 5, "prompt", 10)
    assert error.value.problem.param == "min_tokens"


@pytest.mark.parametrize(("tokens", "max_tokens"), [(9, None), (9, 1), (4, 6)])
def test_what_just_fits_is_taken(tokens: int, max_tokens: int | None) -> None:
    """B4."""
    check_length(_body(max_tokens=max_tokens), (1,) * tokens, "prompt", 10)


def test_a_prompt_without_tokens_is_refused() -> None:
    with pytest.raises(ApiError, match="'prompt' holds no tokens"):
        check_length(_body(), (), "prompt", 10)
