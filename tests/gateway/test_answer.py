"""What a request has produced so far."""

import pytest

from distserve_proto.worker_pb2 import Stages, TokenLogprobs
from distserve_worker.gateway.answer import Answer, ChosenToken, Finish, Piece
from distserve_worker.text.stop_strings import StopStrings
from distserve_worker.text.tokenizer import ModelText


class _Grown:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def _answer(text: ModelText, *stops: str, min_tokens: int = 0) -> Answer:
    return Answer(text.tokenizer.detokenizer(), StopStrings(stops), _Grown(), min_tokens)


def _text(answer: Answer) -> str | None:
    piece = answer.take()
    return None if piece is None else piece.text


def _tokens(text: ModelText, words: str) -> list[int]:
    return list(text.tokenizer.encode(words, add_special_tokens=False))


def test_text_can_be_taken_once_as_it_appears(smollm2_text: ModelText) -> None:
    answer = _answer(smollm2_text)
    answer.accept(_tokens(smollm2_text, "one two"))
    assert [answer.take(), answer.take(), answer.finish] == [Piece("one two"), None, None]


def test_a_stop_string_ends_the_answer_at_the_token_that_completes_it(smollm2_text: ModelText) -> None:
    """B11: tokens that a worker made beyond the stop string are neither shown nor counted."""
    tokens = _tokens(smollm2_text, " one two three four")
    answer = _answer(smollm2_text, "two")
    answer.accept(tokens)
    assert (_text(answer), answer.tokens, answer.finish) == (" one ", tokens[:2], Finish.STOP)


def test_the_token_that_stops_the_model_is_counted_but_not_shown(smollm2_text: ModelText) -> None:
    [word] = _tokens(smollm2_text, " one")
    answer = _answer(smollm2_text)
    answer.accept([word, word], Finish.STOP)
    assert (_text(answer), len(answer.tokens), answer.finish) == (" one", 2, Finish.STOP)


def test_the_last_token_of_a_full_answer_is_shown(smollm2_text: ModelText) -> None:
    """B9."""
    answer = _answer(smollm2_text)
    answer.accept(_tokens(smollm2_text, " one"), Finish.LENGTH)
    assert (_text(answer), answer.finish) == (" one", Finish.LENGTH)


def test_what_was_held_back_for_a_stop_string_appears_when_the_answer_ends(smollm2_text: ModelText) -> None:
    """B11."""
    answer = _answer(smollm2_text, "one two")
    answer.accept(_tokens(smollm2_text, "one"))
    assert _text(answer) == ""
    answer.accept(_tokens(smollm2_text, " three"), Finish.LENGTH)
    assert _text(answer) == "one three"


def test_an_incomplete_character_is_shown_as_such_only_at_the_end(smollm2_text: ModelText) -> None:
    start, *_ = _tokens(smollm2_text, "🦩")
    answer = _answer(smollm2_text)
    answer.accept([start])
    assert _text(answer) == ""
    answer.accept([], Finish.LENGTH)
    assert _text(answer) == "\ufffd"


def test_stages_of_all_legs_add_up(smollm2_text: ModelText) -> None:
    answer = _answer(smollm2_text)
    answer.record(Stages(prefill_queue=1, prefill=2))
    answer.record(Stages(prefill_queue=3, decode=4, kv_bytes=5, transport="tcp"))
    answer.record(Stages(kv_bytes=5))
    assert (answer.stages.prefill_queue, answer.stages.prefill, answer.stages.decode) == (4, 2, 4)
    assert (answer.kv_bytes, answer.transport) == (10, "tcp")


@pytest.mark.parametrize("ending", list(Finish))
def test_growth_is_announced(smollm2_text: ModelText, ending: Finish) -> None:
    grown = _Grown()
    answer = Answer(smollm2_text.tokenizer.detokenizer(), StopStrings([]), grown)
    answer.accept([20])
    answer.accept([21], ending)
    assert grown.times == 2


def test_an_answer_has_not_grown_before_its_first_token(smollm2_text: ModelText) -> None:
    answer = _answer(smollm2_text)
    answer.accept([])
    assert answer.take() is None


def test_a_token_without_text_is_growth(smollm2_text: ModelText) -> None:
    """B10: the client may know that there is a first token."""
    start, *_ = _tokens(smollm2_text, "🦩")
    answer = _answer(smollm2_text)
    answer.accept([start])
    assert answer.take() == Piece("")


def test_stop_strings_do_not_count_before_the_least_length(smollm2_text: ModelText) -> None:
    """B11: they are text there, and so is one that only begins there."""
    tokens = _tokens(smollm2_text, " one two one two three")
    answer = _answer(smollm2_text, "one", "two three", min_tokens=4)
    answer.accept(tokens[:3])
    assert (_text(answer), answer.finish) == (" one two one", None)
    answer.accept(tokens[3:])
    assert (_text(answer), answer.finish) == (" ", Finish.STOP)


def _logprobs(count: int) -> list[TokenLogprobs]:
    return [TokenLogprobs(logprob=-place) for place in range(count)]


def test_log_probabilities_come_with_their_tokens(smollm2_text: ModelText) -> None:
    """B12: one for each token that usage counts, the one that stops the model included."""
    tokens = [*_tokens(smollm2_text, " one two"), 2]
    told = _logprobs(3)
    answer = _answer(smollm2_text)
    answer.accept(tokens[:1], logprobs=told[:1])
    assert answer.take() == Piece(" one", (ChosenToken(tokens[0], 0, told[0]),))
    answer.accept(tokens[1:], Finish.STOP, told[1:])
    chosen = ChosenToken(tokens[1], 4, told[1]), ChosenToken(tokens[2], 8, told[2])
    assert answer.take() == Piece(" two", chosen, Finish.STOP)


def test_log_probabilities_do_not_tell_the_head_of_a_stop_string(smollm2_text: ModelText) -> None:
    """B11."""
    tokens, told = _tokens(smollm2_text, " one two three"), _logprobs(3)
    answer = _answer(smollm2_text, "one two four")
    answer.accept(tokens[:2], logprobs=told[:2])
    assert answer.take() == Piece(" ")
    answer.accept(tokens[2:], Finish.LENGTH, told[2:])
    piece = answer.take()
    assert piece is not None
    assert (piece.text, [one.token for one in piece.chosen]) == ("one two three", tokens)


def test_tokens_beyond_a_stop_string_have_no_log_probabilities(smollm2_text: ModelText) -> None:
    tokens = _tokens(smollm2_text, " one two three")
    answer = _answer(smollm2_text, "two")
    answer.accept(tokens, logprobs=_logprobs(3))
    piece = answer.take()
    assert piece is not None
    assert [one.token for one in piece.chosen] == answer.tokens == tokens[:2]


def test_pieces_can_be_joined() -> None:
    one, two = (ChosenToken(token, token, TokenLogprobs()) for token in (1, 2))
    joined = Piece.joined([Piece("a", (one,)), Piece(""), Piece("b", (two,), Finish.LENGTH)])
    assert joined == Piece("ab", (one, two), Finish.LENGTH)


def test_only_what_was_cached_before_the_first_leg_was_saved(smollm2_text: ModelText) -> None:
    """What a request finds of its own on a second try is not reported."""
    answer = _answer(smollm2_text)
    assert answer.cached_tokens == 0
    answer.record(Stages(cached_tokens=3))
    answer.record(Stages(cached_tokens=64))
    assert answer.cached_tokens == 3
