"""Text that comes token by token."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from distserve_worker.text.tokenizer import Tokenizer

TOKENS = st.lists(st.integers(min_value=0, max_value=49151), max_size=60)


def _pieces(tokenizer: Tokenizer, tokens: list[int]) -> list[str]:
    detokenizer = tokenizer.detokenizer()
    return [*(detokenizer.feed([token]) for token in tokens), detokenizer.finish()]


@settings(max_examples=300)
@given(text=st.text())
@example(text="😀👩‍👩‍👧‍👦 日本語")
def test_text_survives_the_round_trip_token_by_token(tokenizer: Tokenizer, text: str) -> None:
    tokens = list(tokenizer.encode(text, add_special_tokens=False))
    assert "".join(_pieces(tokenizer, tokens)) == tokenizer.backend.decode(tokens)


@settings(max_examples=300)
@given(tokens=TOKENS)
def test_any_tokens_give_the_text_that_transformers_decodes(
    tokenizer: Tokenizer, reference: Any, tokens: list[int]
) -> None:
    expected = reference.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert "".join(_pieces(tokenizer, tokens)) == expected


def test_a_character_appears_only_when_it_is_complete(tokenizer: Tokenizer) -> None:
    tokens = list(tokenizer.encode("🦩", add_special_tokens=False))
    assert len(tokens) > 1
    assert _pieces(tokenizer, tokens) == [*[""] * (len(tokens) - 1), "🦩", ""]


def test_a_character_that_stays_incomplete_is_replaced_only_at_the_end(tokenizer: Tokenizer) -> None:
    tokens = list(tokenizer.encode("🦩", add_special_tokens=False))[:-1]
    assert _pieces(tokenizer, tokens) == [*[""] * len(tokens), "\ufffd"]


def test_control_tokens_leave_no_text(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("a<|im_end|>b", add_special_tokens=False)
    assert tokenizer.detokenizer().feed(tokens) == "ab"


def test_a_token_outside_the_vocabulary_leaves_no_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.detokenizer().feed([49152, 10**6]) == ""
