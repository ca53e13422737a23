"""What a request has produced so far."""

import pytest

from distserve_proto.worker_pb2 import Stages
from distserve_worker.gateway.answer import Answer, Finish
from distserve_worker.text.stop_strings import StopStrings
from distserve_worker.text.tokenizer import ModelText


class _Grown:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def _answer(text: ModelText, *stops: str) -> Answer:
    return Answer(text.tokenizer.detokenizer(), StopStrings(stops), _Grown())


def _tokens(text: ModelText, words: str) -> list[int]:
    return list(text.tokenizer.encode(words, add_special_tokens=False))


def test_text_can_be_taken_once_as_it_appears(smollm2_text: ModelText) -> None:
    answer = _answer(smollm2_text)
    answer.accept(_tokens(smollm2_text, "one two"))
    assert [answer.take(), answer.take(), answer.finish] == ["one two", "", None]


def test_a_stop_string_ends_the_answer_at_the_token_that_completes_it(smollm2_text: ModelText) -> None:
    """B11: tokens that a worker made beyond the stop string are neither shown nor counted."""
    tokens = _tokens(smollm2_text, " one two three four")
    answer = _answer(smollm2_text, "two")
    answer.accept(tokens)
    assert (answer.take(), answer.tokens, answer.finish) == (" one ", tokens[:2], Finish.STOP)


def test_the_token_that_stops_the_model_is_counted_but_not_shown(smollm2_text: ModelText) -> None:
    [word] = _tokens(smollm2_text, " one")
    answer = _answer(smollm2_text)
    answer.accept([word, word], Finish.STOP)
    assert (answer.take(), len(answer.tokens), answer.finish) == (" one", 2, Finish.STOP)


def test_the_last_token_of_a_full_answer_is_shown(smollm2_text: ModelText) -> None:
    """B9."""
    answer = _answer(smollm2_text)
    answer.accept(_tokens(smollm2_text, " one"), Finish.LENGTH)
    assert (answer.take(), answer.finish) == (" one", Finish.LENGTH)


def test_what_was_held_back_for_a_stop_string_appears_when_the_answer_ends(smollm2_text: ModelText) -> None:
    """B11."""
    answer = _answer(smollm2_text, "one two")
    answer.accept(_tokens(smollm2_text, "one"))
    assert answer.take() == ""
    answer.accept(_tokens(smollm2_text, " three"), Finish.LENGTH)
    assert answer.take() == "one three"


def test_an_incomplete_character_is_shown_as_such_only_at_the_end(smollm2_text: ModelText) -> None:
    start, *_ = _tokens(smollm2_text, "🦩")
    answer = _answer(smollm2_text)
    answer.accept([start])
    assert answer.take() == ""
    answer.accept([], Finish.LENGTH)
    assert answer.take() == "\ufffd"


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
