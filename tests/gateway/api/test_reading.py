"""Bodies that clients send."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from distserve_worker.gateway.api.bodies import ChatBody, CompletionBody
from distserve_worker.gateway.api.fields import HARMLESS, MESSAGE_OFF, OFF
from distserve_worker.gateway.api.reading import read_chat, read_completion
from distserve_worker.gateway.errors import ApiError, Problem

USER = {"role": "user", "content": "hi"}
CHAT: dict[str, Any] = {"model": "m", "messages": [USER]}
TEXT = {"type": "text", "text": "hi"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "hi"}


def _refused_chat(body: Any) -> Problem:
    with pytest.raises(ApiError) as error:
        read_chat(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert error.value.problem.status == 400
    return error.value.problem


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b'{"temperature": NaN}', b"[" * 100_000, b'{"model": "\\ud800"}'],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    assert _refused_chat(body).code == "invalid_json"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 7}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [USER, 1]}, "messages[1]"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": None}]}, "messages[0].role"),
        ({"messages": [USER | {"content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [USER | {"content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [USER | {"tool_calls": [{}]}]}, "messages[0].tool_calls"),
        ({"messages": [USER | {"colour": "red"}]}, "messages[0].colour"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 1e308 * 10}, None),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"seed": 2**63}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": "many"}, "max_completion_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop[0]"),
        ({"stop": ["a", 1]}, "stop[1]"),
        ({"stop": {}}, "stop"),
        ({"stop": [None]}, "stop[0]"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "return_token_ids": True}, "return_token_ids"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": True}, "n"),
        ({"logprobs": 1}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty"),
        ({"repetition_penalty": 101}, "repetition_penalty"),
        ({"frequency_penalty": 2.5}, "frequency_penalty"),
        ({"presence_penalty": -2.5}, "presence_penalty"),
        ({"presence_penalty": "1"}, "presence_penalty"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias[5]"),
        ({"logit_bias": {"5": "much"}}, "logit_bias[5]"),
        ({"logit_bias": {"five": 1}}, "logit_bias"),
        ({"logit_bias": {"-5": 1}}, "logit_bias"),
        ({"logit_bias": {"05": 1}}, "logit_bias"),
        ({"logit_bias": {"²": 1}}, "logit_bias"),
        ({"logit_bias": {"": 1}}, "logit_bias"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"min_tokens": 5, "max_completion_tokens": 4}, "min_tokens"),
        ({"stop_token_ids": 5}, "stop_token_ids"),
        ({"stop_token_ids": [5, -1]}, "stop_token_ids[1]"),
        ({"stop_token_ids": [5] * 129}, "stop_token_ids"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{}]}, "functions"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"best_of": 2}, "best_of"),
        ({"echo": True}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"audio": {}}, "audio"),
        ({"temprature": 1}, "temprature"),
        ({"stream": True, "stream_options": {"foo": 1}}, "stream_options.foo"),
        ({"stream": True, "stream_options": 1}, "stream_options"),
        ({"messages": [USER | {"content": [TEXT | {"cache_control": {}}]}]}, "messages[0].content[0].cache_control"),
        ({"messages": [USER | {"content": [TEXT, IMAGE]}]}, "messages[0].content[1].type"),
        ({"messages": [USER | {"content": [TEXT, 1]}]}, "messages[0].content[1]"),
        ({"max_tokens": 2**31}, "max_tokens"),
        ({"max_completion_tokens": 2**31}, "max_completion_tokens"),
        ({"top_k": 2**31}, "top_k"),
        ({"stop": "a" * 1025}, "stop[0]"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_field(change: dict[str, Any], param: str | None) -> None:
    problem = _refused_chat(CHAT | change)
    assert problem.param == param
    assert problem.type == "invalid_request_error"
    assert param is None or param in problem.message


def test_a_missing_field_is_named() -> None:
    problem = _refused_chat({"messages": [USER]})
    assert (problem.param, problem.code) == ("model", "missing_required_parameter")


def test_fields_that_change_nothing_are_accepted() -> None:
    harmless = {field: {"any": "thing"} for field in HARMLESS}
    assert read_chat(json.dumps(CHAT | harmless).encode()) == read_chat(json.dumps(CHAT).encode())


@pytest.mark.parametrize(("field", "values"), OFF.items())
def test_unsupported_fields_are_accepted_while_they_are_off(field: str, values: tuple[Any, ...]) -> None:
    for value in (None, *values):
        assert read_chat(json.dumps(CHAT | {field: value}).encode()).messages


def test_an_answer_can_be_sent_back_as_openai_clients_dump_it() -> None:
    dumped = {"role": "assistant", "content": "hello"} | dict.fromkeys(MESSAGE_OFF)
    body = read_chat(json.dumps(CHAT | {"messages": [USER, dumped, USER]}).encode())
    assert body.messages[1].for_template() == {"role": "assistant", "content": "hello"}


def test_messages_reach_the_template_as_plain_text() -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    body = read_chat(json.dumps(CHAT | {"messages": messages}).encode())
    assert [message.for_template() for message in body.messages] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a\nb", "name": "ann"},
    ]


def test_absent_and_null_limits_stay_absent() -> None:
    """B9."""
    for limits in ({}, {"max_tokens": None}, {"max_completion_tokens": None}):
        assert read_chat(json.dumps(CHAT | limits).encode()).limit[0] is None


@pytest.mark.parametrize(
    ("fields", "told"),
    [({}, None), ({"logprobs": False}, None), ({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 20}, 20)],
)
def test_chat_asks_for_log_probabilities_by_two_fields(fields: dict[str, Any], told: int | None) -> None:
    assert read_chat(json.dumps(CHAT | fields).encode()).told_logprobs == told


@pytest.mark.parametrize(("logprobs", "told"), [(None, None), (0, 0), (20, 20)])
def test_completions_ask_for_log_probabilities_by_a_number(logprobs: int | None, told: int | None) -> None:
    assert read_completion(json.dumps(COMPLETION | {"logprobs": logprobs}).encode()).told_logprobs == told


@pytest.mark.parametrize("logprobs", [True, -1, 21, "5"])
def test_any_other_number_of_log_probabilities_is_refused(logprobs: Any) -> None:
    with pytest.raises(ApiError) as error:
        read_completion(json.dumps(COMPLETION | {"logprobs": logprobs}).encode())
    assert error.value.problem.param == "logprobs"


def test_token_ids_of_a_bias_are_its_keys() -> None:
    body = read_chat(json.dumps(CHAT | {"logit_bias": {"0": -100, "2147483647": 0.5}}).encode())
    assert body.logit_bias == {0: -100, 2147483647: 0.5}


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_limit_mean_the_same(field: str) -> None:
    assert read_chat(json.dumps(CHAT | {field: 5}).encode()).limit == (5, field)


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("hi", "hi"), (["hi"], "hi"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2]), ("", ""), ([], [])],
)
def test_a_prompt_is_text_or_token_ids(prompt: Any, read: Any) -> None:
    assert read_completion(json.dumps(COMPLETION | {"prompt": prompt}).encode()).prompt == read


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (None, "prompt"),
        ({}, "prompt"),
        (["a", "b"], "prompt"),
        ([[1], [2]], "prompt"),
        ([1, "a"], "prompt[1]"),
        ([-1], "prompt[0]"),
        ([1.5], "prompt[0]"),
        ([True], "prompt[0]"),
        ([2**31], "prompt[0]"),
        ([[1, "a"]], "prompt[1]"),
    ],
)
def test_any_other_prompt_is_refused(prompt: Any, param: str) -> None:
    with pytest.raises(ApiError) as error:
        read_completion(json.dumps(COMPLETION | {"prompt": prompt}).encode())
    assert error.value.problem.param == param


def _many(item: str) -> str:
    """As much of it as a body of 4 MiB has room for."""
    return ",".join([item] * (4 * 2**20 // (len(item) + 1)))


def _object_with_many_keys() -> str:
    return ",".join(f'"k{key}":1' for key in range(300_000))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (f'"messages": [{_many("{}")}]', "messages"),
        (f'"messages": [{{"role": "user", "content": [{_many("{}")}]}}]', "messages[0].content"),
        (f'"messages": [{{"role": "user", "content": [{_many("1")}]}}]', "messages[0].content"),
        (f'"messages": [{_many(json.dumps(USER | {"content": [1, 1]}))}]', "messages"),
        (f'"messages": [{{"role": "user", "content": [{",".join(["{}"] * 1024)}]}}]', "messages[0].content[0].type"),
        (
            f'"messages": [{{"role": "user", "content": [{{"type": "text", {_object_with_many_keys()}}}]}}]',
            "messages[0].content[0].k0",
        ),
        (
            f'"messages": [{{"role": "user", "content": [{{"type": "odd", {_object_with_many_keys()}}}]}}]',
            "messages[0].content[0].type",
        ),
        (f'"messages": [{{"role": "user", {_object_with_many_keys()}}}]', "messages[0].k0"),
        (f'"messages": [], "stream_options": {{{_object_with_many_keys()}}}', "stream_options.k0"),
        (f'"messages": [], "logit_bias": {{{_object_with_many_keys()}}}', "logit_bias"),
        (_object_with_many_keys(), "k0"),
        (f'"stop": [{_many("1")}], "messages": [{json.dumps(USER)}]', "stop[0]"),
        (f'"stop_token_ids": [{_many("true")}], "messages": [{json.dumps(USER)}]', "stop_token_ids[0]"),
        (f'"stop": ["{"a" * 4_000_000}"], "messages": [{json.dumps(USER)}]', "stop[0]"),
        (f'"prompt": [[{_many("true")}]]', "prompt[0]"),
        (f'"prompt": [{_many("1.5")}]', "prompt[0]"),
    ],
)
def test_a_body_that_is_wrong_in_a_million_places_is_refused_for_the_first(fields: str, param: str) -> None:
    """Describing every fault would keep the gateway from all other requests for a minute."""
    read = read_completion if "prompt" in fields else read_chat
    with pytest.raises(ApiError) as error:
        read(f'{{"model": "m", {fields}}}'.encode())
    assert error.value.problem.param == param
    faults = error.value.__cause__
    assert faults is None or (isinstance(faults, ValidationError) and faults.error_count() < 10)


def test_what_conversations_need_is_within_the_bounds() -> None:
    parts = [TEXT] * 1024
    body = read_chat(json.dumps(CHAT | {"messages": [USER] * 4095 + [USER | {"content": parts}]}).encode())
    assert len(body.messages) == 4096


LONG = "é" * 100_000


@pytest.mark.parametrize(
    "change",
    [
        {LONG: 1},
        {"stream_options": {LONG: 1}},
        {"messages": [USER | {LONG: 1}]},
        {"messages": [USER | {"content": [TEXT | {LONG: 1}]}]},
        {"messages": [USER | {"role": LONG}]},
        {"messages": LONG},
        {"stream": LONG},
        {"stop": [LONG]},
        {"temperature": LONG},
        {"temperature": 10**4000},
        {"max_tokens": 10**4299},
        {"max_tokens": -(10**4299)},
        {"top_k": 10**4299},
        {"seed": 10**4299},
    ],
)
def test_an_error_repeats_little_of_what_the_client_sent(change: dict[str, Any]) -> None:
    assert len(json.dumps(_refused_chat(CHAT | change).body, ensure_ascii=False)) < 600


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [*ChatBody.model_fields, *CompletionBody.model_fields, "tools", "x"]


@given(body=st.dictionaries(st.sampled_from(FIELDS), VALUES))
def test_any_json_is_either_taken_or_refused(body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    for read in (read_chat, read_completion):
        with contextlib.suppress(ApiError):
            read(raw)
