"""OpenAI's own client against a gateway with SmolLM2 behind it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.workers import WorkerProcess

from distserve_worker.text.tokenizer import ModelText

MODEL = "test-model"
QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
GREEDY: Any = {"model": MODEL, "temperature": 0, "max_tokens": 24}


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("smollm2")
    prefill = WorkerProcess("prefill", smollm2_path, folder, kv_cache_memory="128Mi")
    decode = WorkerProcess("decode", smollm2_path, folder, kv_cache_memory="128Mi")
    gateway = GatewayProcess(smollm2_path, [prefill.grpc, decode.grpc], folder)
    yield gateway.wait_until_usable()
    gateway.kill()
    prefill.kill()
    decode.kill()


@pytest.fixture
def client(smollm2: GatewayProcess) -> Iterator[openai.OpenAI]:
    with smollm2.openai() as client:
        yield client


def test_a_chat_answer_has_text_usage_and_a_reason(client: openai.OpenAI) -> None:
    """B12."""
    completion = client.chat.completions.create(messages=QUESTION, **GREEDY)
    choice, usage = completion.choices[0], completion.usage
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", ANSWER, "stop")
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (37, 8, 45)


def test_a_streamed_chat_answer_is_the_same(client: openai.OpenAI) -> None:
    """B2 and B12."""
    options: Any = {"include_usage": True}
    chunks = list(client.chat.completions.create(messages=QUESTION, stream=True, stream_options=options, **GREEDY))
    *texts, last, usage = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in texts) == ANSWER
    assert texts[0].choices[0].delta.role == "assistant"
    assert last.choices[0].finish_reason == "stop"
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.total_tokens == 45
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_usage_is_not_streamed_unless_asked_for(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(messages=QUESTION, stream=True, **GREEDY))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_a_completion_and_its_stream_agree(client: openai.OpenAI) -> None:
    """B2."""
    whole = client.completions.create(prompt="1 2 3", **GREEDY)
    pieces = client.completions.create(prompt="1 2 3", stream=True, **GREEDY)
    assert "".join(chunk.choices[0].text for chunk in pieces) == whole.choices[0].text
    assert whole.choices[0].text.startswith(" 4 5 6")
    assert whole.choices[0].finish_reason == "length"


def test_a_prompt_of_token_ids_is_the_prompt_of_its_text(client: openai.OpenAI, smollm2_text: ModelText) -> None:
    tokens = list(smollm2_text.tokenizer.encode("1 2 3", add_special_tokens=True))
    from_text = client.completions.create(prompt="1 2 3", **GREEDY)
    from_tokens = client.completions.create(prompt=tokens, **GREEDY)
    assert from_tokens.choices[0].text == from_text.choices[0].text


def test_a_stop_string_ends_the_text_before_it(client: openai.OpenAI) -> None:
    """B11."""
    completion = client.completions.create(prompt="1 2 3", stop=[" 6", "never"], **GREEDY)
    assert (completion.choices[0].text, completion.choices[0].finish_reason) == (" 4 5", "stop")


def test_a_seed_makes_sampling_repeatable(client: openai.OpenAI) -> None:
    sampling = GREEDY | {"temperature": 1.5, "top_p": 0.9, "seed": -7}
    first, second = (client.completions.create(prompt="A poem:", **sampling) for _ in range(2))
    assert first.choices[0].text == second.choices[0].text
    other = client.completions.create(prompt="A poem:", **sampling | {"seed": 8})
    assert other.choices[0].text != first.choices[0].text


def test_several_choices_and_their_log_probabilities_are_understood(client: openai.OpenAI) -> None:
    """B12."""
    sampling = GREEDY | {"temperature": 1.0, "seed": 1, "max_tokens": 6}
    asked: Any = {"messages": QUESTION, "n": 2, "logprobs": True, "top_logprobs": 2, **sampling}
    completion = client.chat.completions.create(**asked)
    assert [choice.index for choice in completion.choices] == [0, 1]
    for choice in completion.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert all(len(entry.top_logprobs) == 2 and entry.logprob <= 0 for entry in choice.logprobs.content)
        spelled = b"".join(bytes(entry.bytes or []) for entry in choice.logprobs.content)
        assert spelled.decode().removesuffix("<|im_end|>") == choice.message.content
    legacy = client.completions.create(prompt="1 2 3", logprobs=1, **GREEDY)
    told = legacy.choices[0].logprobs
    assert told is not None
    assert told.tokens is not None
    assert "".join(told.tokens) == legacy.choices[0].text
    assert told.text_offset == [sum(map(len, told.tokens[:place])) for place in range(len(told.tokens))]


def test_the_model_is_listed_and_can_be_retrieved(client: openai.OpenAI) -> None:
    """B17."""
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "distserve"


def test_another_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(messages=QUESTION, **GREEDY | {"model": "gpt-5"})
    assert (error.value.code, error.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


def test_bad_values_are_bad_requests_that_name_the_field(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(messages=QUESTION, **GREEDY | {"temperature": -1})
    assert error.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(messages=QUESTION, n=0, **GREEDY)
    assert error.value.param == "n"


def test_too_long_a_prompt_says_how_long_it_may_be(client: openai.OpenAI) -> None:
    """B4."""
    with pytest.raises(openai.BadRequestError, match=r"at most \d+ tokens per request, but 200024 are needed") as error:
        client.completions.create(prompt=[5] * 200_000, **GREEDY)
    assert error.value.code == "context_length_exceeded"
