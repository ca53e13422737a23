"""Parameters of sampling, log probabilities and several choices, from HTTP through real workers and back."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import transformers
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.workers import Pair

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "hello"}], "logprobs": True, "top_logprobs": 3},
    COMPLETIONS: {"prompt": "hello", "logprobs": 3},
}
ENDPOINTS = pytest.mark.parametrize("path", list(ASKED))
# With the few best of a model with random weights no rounding error changes which token a random number falls on.
SAMPLED = {"temperature": 1.0, "top_k": 8, "seed": 4}
PROMPT = [5, 6, 7, 8]


def _body(path: str, **fields: Any) -> dict[str, Any]:
    return {"model": "test-model", "max_tokens": 6, "temperature": 0, **ASKED[path], **fields}


def _whole(gateway: GatewayProcess, path: str, **fields: Any) -> dict[str, Any]:
    response = gateway.post(path, _body(path, **fields))
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def _streamed(gateway: GatewayProcess, path: str, **fields: Any) -> dict[str, Any]:
    """A stream put together again, as a whole response would be."""
    options = {"stream": True, "stream_options": {"include_usage": True}}
    response = gateway.post(path, _body(path, **options, **fields))
    *lines, done = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert done == "[DONE]", response.text
    *chunks, usage = map(json.loads, lines)
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        _join(choices.setdefault(choice["index"], {"text": "", "logprobs": {}, "finish_reason": None}), choice)
    return {"choices": [choices[index] for index in sorted(choices)], "usage": usage["usage"]}


def _join(so_far: dict[str, Any], choice: dict[str, Any]) -> None:
    assert so_far["finish_reason"] is None, "nothing comes after the end of a choice"
    so_far["text"] += choice["text"] if "text" in choice else choice["delta"].get("content", "")
    so_far["finish_reason"] = choice["finish_reason"]
    for name, values in (choice["logprobs"] or {}).items():
        so_far["logprobs"][name] = None if values is None else so_far["logprobs"].get(name, []) + values


def _simple(body: dict[str, Any]) -> dict[str, Any]:
    """What must be the same streamed and whole."""
    choices = [
        {
            "text": choice["text"] if "text" in choice else choice["message"]["content"],
            "logprobs": choice["logprobs"],
            "finish_reason": choice["finish_reason"],
        }
        for choice in body["choices"]
    ]
    return {"choices": choices, "usage": body["usage"]}


def _exact(value: Any) -> Any:
    """Everything but log probabilities."""
    match value:
        case float():
            return None
        case dict():
            return {name: _exact(part) for name, part in value.items()}
        case list():
            return [_exact(part) for part in value]
        case _:
            return value


def _floats(value: Any) -> Iterator[float]:
    """The log probabilities, in order."""
    match value:
        case float():
            yield value
        case dict():
            for name in sorted(value):
                yield from _floats(value[name])
        case list():
            for part in value:
                yield from _floats(part)


@ENDPOINTS
@pytest.mark.parametrize("fields", [{}, {"max_tokens": 1}, {"n": 3, **SAMPLED}], ids=["one", "no decode leg", "three"])
def test_streamed_and_whole_answers_have_the_same_fields(
    gateway: GatewayProcess, path: str, fields: dict[str, Any]
) -> None:
    """B2, B9 and B12: log probabilities of the first token included, one for each token of usage."""
    whole, streamed = _simple(_whole(gateway, path, **fields)), _simple(_streamed(gateway, path, **fields))
    assert _exact(streamed) == _exact(whole)
    assert list(_floats(streamed)) == pytest.approx(list(_floats(whole)), abs=1e-4)  # batches differ in rounding
    told = [choice["logprobs"]["content" if path == CHAT else "tokens"] for choice in whole["choices"]]
    assert sum(map(len, told)) == whole["usage"]["completion_tokens"]
    assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0


@pytest.fixture(scope="module")
def reference(tiny_llama: Path) -> Any:
    """The same weights in transformers."""
    return transformers.LlamaForCausalLM.from_pretrained(tiny_llama).eval()


def test_log_probabilities_are_those_of_the_reference(gateway: GatewayProcess, reference: Any) -> None:
    """Whatever is done to the logits before a token is drawn."""
    fields = {"prompt": PROMPT, "logprobs": 4, "return_token_ids": True, **SAMPLED, "repetition_penalty": 1.5}
    choice = _whole(gateway, COMPLETIONS, **fields)["choices"][0]
    tokens = choice["token_ids"]
    with torch.inference_mode():
        logits = reference(torch.tensor([PROMPT + tokens])).logits[0, len(PROMPT) - 1 : -1]
    expected = torch.log_softmax(logits, dim=-1)
    own = expected.gather(1, torch.tensor(tokens).unsqueeze(-1)).squeeze(-1)
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(own.tolist(), abs=1e-3)
    for told, row in zip(choice["logprobs"]["top_logprobs"], expected, strict=True):
        best = row.topk(4).values.tolist()
        assert sorted(told.values(), reverse=True)[:4] == pytest.approx(best, abs=1e-3)


def test_each_choice_is_what_its_seed_alone_gives(gateway: GatewayProcess) -> None:
    """Usage counts the prompt once and every choice's output."""
    several = _whole(gateway, COMPLETIONS, n=3, return_token_ids=True, **SAMPLED)
    alone = [
        _whole(gateway, COMPLETIONS, return_token_ids=True, **SAMPLED | {"seed": SAMPLED["seed"] + index})
        for index in range(3)
    ]
    assert [choice["index"] for choice in several["choices"]] == [0, 1, 2]
    assert [choice["token_ids"] for choice in several["choices"]] == [body["choices"][0]["token_ids"] for body in alone]
    assert several["usage"]["prompt_tokens"] == alone[0]["usage"]["prompt_tokens"]
    assert several["usage"]["completion_tokens"] == 18
    assert several["distserve"]["kv_bytes"] == sum(body["distserve"]["kv_bytes"] for body in alone)


def test_choices_without_a_seed_differ(gateway: GatewayProcess) -> None:
    choices = _whole(gateway, COMPLETIONS, n=4, temperature=1, return_token_ids=True)["choices"]
    assert len({tuple(choice["token_ids"]) for choice in choices}) == 4


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_all_choices(gateway: GatewayProcess, pair: Pair, stream: bool) -> None:
    """B5."""
    body = _body(COMPLETIONS, n=3, max_tokens=3000, ignore_eos=True, stream=stream)
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        request = client.build_request("POST", COMPLETIONS, json=body)
        if stream:
            response = client.send(request, stream=True)
            pair.decode.wait_for(requests_running=3)
            assert gateway.metrics()["requests_in_flight"] == 3
            response.close()
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post(COMPLETIONS, json=body, timeout=1)
    for worker in pair:
        worker.wait_until_empty()
    gateway.wait_for(requests_in_flight=0)


def test_a_biased_token_is_chosen_and_ends_the_answer_when_it_is_a_stop(gateway: GatewayProcess) -> None:
    """B9: with the first token already; its text does not show."""
    bias = {"100": 100}
    fields = {"logit_bias": bias, "return_token_ids": True}
    assert _whole(gateway, COMPLETIONS, **fields)["choices"][0]["token_ids"] == [100] * 6
    body = _whole(gateway, COMPLETIONS, stop_token_ids=[100], **fields)
    assert (body["choices"][0]["token_ids"], body["choices"][0]["text"]) == ([100], "")
    assert (body["choices"][0]["finish_reason"], body["distserve"]["decode_worker"]) == ("stop", None)


def test_no_stop_counts_before_the_least_length(gateway: GatewayProcess) -> None:
    """B11: neither a token nor a string; over both legs."""
    bias = {"100": 100, "101": 50}
    fields = {"logit_bias": bias, "return_token_ids": True, "min_tokens": 4}
    tokens = _whole(gateway, COMPLETIONS, stop_token_ids=[100], **fields)["choices"][0]["token_ids"]
    assert tokens == [101, 101, 101, 101, 100]
    text = _whole(gateway, COMPLETIONS, logit_bias=bias, max_tokens=1)["choices"][0]["text"]
    choice = _whole(gateway, COMPLETIONS, stop=[text], **fields)["choices"][0]
    assert (len(choice["token_ids"]), choice["text"], choice["finish_reason"]) == (4, text * 3, "stop")


def _penalized(reference: Any, tokens: list[int], prompt: int, presence: float, frequency: float) -> int:
    """The most likely next token by OpenAI's formula."""
    with torch.inference_mode():
        logits = reference(torch.tensor([tokens])).logits[0, -1].tolist()
    for token, count in Counter(tokens[prompt:]).items():
        logits[token] -= presence + frequency * count
    return int(max(range(len(logits)), key=logits.__getitem__))


@pytest.mark.parametrize(("presence", "frequency"), [(2.0, 0.0), (0.0, 2.0), (-2.0, -2.0), (1.5, 1.5)])
def test_presence_and_frequency_penalties_count_the_output_of_both_legs(
    gateway: GatewayProcess, reference: Any, presence: float, frequency: float
) -> None:
    fields = {"presence_penalty": presence, "frequency_penalty": frequency, "return_token_ids": True}
    body = _whole(gateway, COMPLETIONS, prompt=PROMPT, max_tokens=12, **fields)
    tokens = list(PROMPT)
    for _ in range(12):
        tokens.append(_penalized(reference, tokens, len(PROMPT), presence, frequency))
    assert body["choices"][0]["token_ids"] == tokens[len(PROMPT) :]


def test_the_repetition_penalty_counts_the_prompt_and_the_output_of_both_legs(gateway: GatewayProcess) -> None:
    """Logits of 80 and more come to less than all others of their kind once their token is there."""
    fields = {"logit_bias": {str(token): 80 for token in range(100, 106)}, "repetition_penalty": 1.5}
    body = _whole(gateway, COMPLETIONS, prompt=[105, 104], return_token_ids=True, **fields)
    assert sorted(body["choices"][0]["token_ids"][:4]) == [100, 101, 102, 103]


def test_a_negligible_share_leaves_only_the_most_likely(gateway: GatewayProcess) -> None:
    greedy = _whole(gateway, COMPLETIONS)["choices"][0]["text"]
    assert _whole(gateway, COMPLETIONS, temperature=2, min_p=1.0)["choices"][0]["text"] == greedy
    assert _whole(gateway, COMPLETIONS, temperature=2, top_k=1)["choices"][0]["text"] == greedy


def test_more_choices_than_the_gateway_takes_at_once_are_refused(gateway: GatewayProcess) -> None:
    response = gateway.complete(n=129)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "n")
