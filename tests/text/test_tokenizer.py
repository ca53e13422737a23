"""Tokens of text: ours must be transformers' own."""

import sys
from threading import Thread
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distserve_worker.text.tokenizer import ModelText, TextTooLongError, Tokenizer

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  leading and trailing  ",
    "tabs\tand\r\nline ends\n\n\nend",
    "don't, we'll, I'M, they've",
    "def f(x):\n    return x ** 2  # square\n",
    "price: $1,234.56 for 3 of 12 items",
    "año, naïve, Übermaß, Ελληνικά, русский, עברית, العربية",
    "日本語のテキスト と 中文 한국어",
    "emoji 😀👩‍👩‍👧‍👦🏳️‍🌈 done",
    "combining e\u0301 and zero\u200bwidth",
    "<|im_start|>user\nhi<|im_end|>",
    "almost <|im_start| special <|endoftext",
    "a<|endoftext|>b <repo_name>",
    "\x00\x01\x7f",
    "x" * 300,
    "the " * 200,
]
DIGIT_RUNS = ["\n\n1. one\n2. two", "a   5", "\t\t7", "½ ² Ⅷ ١٢", "1  22   333"]


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_equal_those_of_transformers(tokenizer: Tokenizer, converted_reference: Any, text: str) -> None:
    assert list(tokenizer.encode(text, add_special_tokens=True)) == converted_reference.encode(text)


@pytest.mark.parametrize("text", TEXTS + DIGIT_RUNS)
def test_tokens_equal_those_of_transformers_with_the_models_own_cut(
    tokenizer: Tokenizer, reference: Any, text: str
) -> None:
    assert list(tokenizer.encode(text, add_special_tokens=True)) == reference.encode(text)


@settings(max_examples=300)
@given(text=st.text())
@example(text="\ud7ff\ue000\U0010ffff")
def test_any_text_has_the_tokens_of_transformers(tokenizer: Tokenizer, reference: Any, text: str) -> None:
    assert list(tokenizer.encode(text, add_special_tokens=True)) == reference.encode(text)


def test_the_model_names_its_stop_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.stop_token_ids == frozenset({2})


def test_the_vocabulary_is_that_of_the_model(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocabulary_size == 49152


def test_a_long_text_without_spaces_is_tokenized_without_loss(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("ab" * 50_000, add_special_tokens=False)
    assert tokenizer.detokenizer().feed(tokens) == "ab" * 50_000


def test_a_text_that_is_far_too_long_is_refused_without_tokenizing_it(tokenizer: Tokenizer) -> None:
    with pytest.raises(TextTooLongError) as error:
        tokenizer.encode(" " * 400_000, add_special_tokens=False, at_most=1000)
    assert 1000 < error.value.at_least <= len(tokenizer.encode(" " * 400_000, add_special_tokens=False))


def test_other_threads_run_while_a_long_text_is_tokenized(tokenizer: Tokenizer) -> None:
    """A gateway answers others meanwhile: here no thread runs unless the one that has the interpreter lets go of it."""
    order: list[str] = []

    def tokenize() -> None:
        order.append("begins")
        tokenizer.encode("1" * 4_000_000, add_special_tokens=False)
        order.append("ends")

    thread, interval = Thread(target=tokenize), sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread.start()
        order.append("another runs")
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert order == ["begins", "another runs", "ends"]


@given(text=st.text() | st.sampled_from(TEXTS + DIGIT_RUNS))
def test_no_text_is_refused_that_has_few_enough_tokens(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.encode(text, add_special_tokens=False, at_most=len(tokens)) == tokens


def test_a_model_that_can_chat_has_a_template(smollm2_text: ModelText) -> None:
    assert smollm2_text.chat_template is not None
