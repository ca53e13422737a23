"""The decode engine: reserving, importing, continuous batching, and what is left after each way of ending."""

import math
from dataclasses import replace

import pytest
import torch
from distserve_testing.engines import EngineMaker, copy_kv, generate, prefilled, steps
from distserve_testing.models import TinyLlama

from distserve_worker.engine.interface import (
    Dropped,
    Engine,
    FinishReason,
    Load,
    PutBack,
    QueueFull,
    Refused,
    Reserved,
    StaleBlocks,
    Token,
    TooLong,
    Work,
)

PROMPT = tuple(range(10, 30))
EMPTY = Load(queued_tokens=0, waiting=0, running=0, free_blocks=64, total_blocks=64, parked=0)


def _work(request_id: str = "r", max_tokens: int | None = 10) -> Work:
    return Work(request_id, PROMPT, output=(5,), max_tokens=max_tokens)


def _run_for(engine: Engine, count: int) -> list[str]:
    """Ids of the tokens of `count` steps."""
    return [happening.request_id for _ in range(count) for happening in engine.step() if isinstance(happening, Token)]


def test_a_request_reserves_blocks_for_the_tokens_it_has_and_grows_into_more(make_engine: EngineMaker) -> None:
    engine = make_engine("decode")
    engine.admit(_work(max_tokens=29))
    assert engine.step() == (Reserved("r"),)
    # with its 21st token it has two blocks
    assert engine.load() == Load(queued_tokens=0, waiting=1, running=0, free_blocks=62, total_blocks=64, parked=0)
    assert not engine.has_work()
    assert len(engine.import_target("r")) == 2
    engine.imported("r")
    held = []
    while engine.has_work():
        engine.step()
        held.append(64 - engine.load().free_blocks)
    # of 20 + 29 tokens the last is never stored
    assert held == [2] * 12 + [3] * 15 + [0]


def test_the_first_in_the_queue_waits_for_blocks_and_nobody_overtakes(make_engine: EngineMaker) -> None:
    engine = make_engine("decode", blocks=4)
    for request_id, more in [("first", 0), ("longer", 30), ("short", 0)]:
        engine.admit(replace(_work(request_id, 14), prompt=(*PROMPT, *range(more))))
    assert engine.step() == (Reserved("first"),)
    engine.imported("first")
    assert set(_run_for(engine, 13)) == {"first"}
    assert engine.step() == (Reserved("longer"),)


def test_the_youngest_gives_its_blocks_back_when_none_is_left(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    prefill, decode = make_engine("prefill"), make_engine("decode", blocks=5)
    works = [Work(request_id, (number, *PROMPT), max_tokens=30) for number, request_id in enumerate("ab")]
    done, parked = prefilled(prefill, works)
    outputs = {request_id: list(work.output) for request_id, work in done.items()}
    put_back = []
    waiting = list(done.values())
    while waiting or decode.has_work():
        while waiting:
            decode.admit(waiting.pop(0))
        for happening in decode.step():
            match happening:
                case Reserved(request_id):
                    copy_kv(prefill, decode, parked[request_id])
                case Token(request_id, token):
                    outputs[request_id].append(token)
                case PutBack(request_id):
                    put_back.append(request_id)
                    moved = replace(done[request_id], output=tuple(outputs[request_id]))
                    again, places = prefilled(prefill, [moved])
                    outputs[request_id] = list(again[request_id].output)
                    parked |= places
                    waiting.append(again[request_id])
    assert put_back == ["b"]
    assert outputs == {work.request_id: tiny.greedy(work.prompt, 30) for work in works}
    assert decode.load().free_blocks == 5


def test_requests_join_and_leave_a_running_batch(make_engine: EngineMaker) -> None:
    engine = make_engine("decode")
    engine.admit(_work("a", max_tokens=4))
    engine.step()
    engine.imported("a")
    assert _run_for(engine, 1) == ["a"]
    engine.admit(_work("b", max_tokens=3))
    assert engine.step() == (Reserved("b"),)
    assert _run_for(engine, 1) == ["a"]
    engine.imported("b")
    batches = [sorted(_run_for(engine, 1)) for _ in range(2)]
    assert batches == [["a", "b"], ["b"]]
    assert engine.load() == EMPTY


def test_room_is_told_before_the_batch_runs(make_engine: EngineMaker) -> None:
    """Both pulls begin while the others' next step runs, not after it."""
    engine = make_engine("decode")
    engine.admit(_work("runs"))
    engine.step()
    engine.imported("runs")
    for request_id in ("new", "newer"):
        engine.admit(_work(request_id))
    assert engine.step() == (Reserved("new"), Reserved("newer"))
    assert _run_for(engine, 2) == ["runs", "runs"]


def test_the_batch_is_bounded(make_engine: EngineMaker) -> None:
    engine = make_engine("decode", max_running=2)
    for request_id in ("a", "b", "c"):
        engine.admit(_work(request_id, max_tokens=3))
    engine.step()
    for request_id in ("b", "a"):
        engine.imported(request_id)
    assert [sorted(_run_for(engine, 1)) for _ in range(2)] == [["a", "b"], ["a", "b"]]
    assert engine.step() == (Reserved("c"),)


def test_a_stop_token_is_the_last_one_told(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    prefill, decode = make_engine("prefill"), make_engine("decode")
    expected = tiny.greedy(PROMPT, 8)
    stop = next(token for token in expected[3:] if token not in expected[:3])
    work = Work("r", PROMPT, stop_token_ids=frozenset({stop}))
    assert generate(prefill, decode, [work]) == {"r": expected[: expected.index(stop) + 1]}
    assert decode.load() == EMPTY


def test_the_end_says_why(make_engine: EngineMaker) -> None:
    engine = make_engine("decode")
    engine.admit(_work(max_tokens=2))
    engine.step()
    engine.imported("r")
    (token,) = engine.step()
    assert isinstance(token, Token)
    assert token.finish is FinishReason.LENGTH


def test_a_reserved_request_that_is_cancelled_keeps_its_blocks_until_its_import_ends(make_engine: EngineMaker) -> None:
    """B7: a transfer that still writes must never write into another request's blocks."""
    for end in (Engine.imported, Engine.unpin):
        engine = make_engine("decode")
        engine.admit(_work())
        engine.step()
        engine.cancel("r")
        assert (engine.load().free_blocks, engine.load().waiting) == (62, 0)
        with pytest.raises(StaleBlocks):
            engine.import_target("r")
        getattr(engine, end.__name__)("r")
        assert engine.load() == EMPTY
        assert not engine.has_work()


def test_an_import_that_failed_can_end_before_the_request_is_cancelled(make_engine: EngineMaker) -> None:
    engine = make_engine("decode")
    engine.admit(_work())
    engine.step()
    engine.unpin("r")
    assert engine.load().free_blocks == 62
    engine.cancel("r")
    assert engine.load() == EMPTY


def test_a_request_can_be_cancelled_while_it_waits_and_while_it_runs(make_engine: EngineMaker) -> None:
    """B5."""
    engine = make_engine("decode", blocks=2)
    engine.admit(_work("runs"))
    engine.admit(_work("waits"))
    engine.step()
    engine.imported("runs")
    engine.step()
    for request_id in ("waits", "runs", "unknown"):
        engine.cancel(request_id)
    assert (engine.load().free_blocks, engine.load().waiting, engine.load().running) == (2, 0, 0)
    assert engine.step() == ()


def test_the_same_id_can_come_again_and_gets_its_own_blocks(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    """A request that moves back to a worker keeps its id."""
    prefill, decode = make_engine("prefill"), make_engine("decode")
    for prompt in (PROMPT, PROMPT[::-1]):
        work = Work("r", prompt, max_tokens=6)
        done, parked = prefilled(prefill, [work])
        decode.admit(done["r"])
        decode.step()
        copy_kv(prefill, decode, parked["r"])
        tokens = [happening.token for happening in decode.step() if isinstance(happening, Token)]
        assert tokens == tiny.greedy(prompt, 2)[1:]
        decode.cancel("r")


def test_a_request_whose_kv_is_not_finite_fails_alone(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    prefill, decode = make_engine("prefill"), make_engine("decode", blocks=4)
    # the shorter one is padded, and not with what the other holds
    works = [Work("ill", PROMPT, max_tokens=4), Work("well", PROMPT[:5], max_tokens=4)]
    done, parked = prefilled(prefill, works)
    for request_id in done:
        decode.admit(done[request_id])
    assert decode.step() == (Reserved("ill"), Reserved("well"))
    ill = decode.region.memory[decode.import_target("ill")[0].index].view(torch.float32)
    for request_id in done:
        copy_kv(prefill, decode, parked[request_id])
    ill[0] = math.nan
    happenings = decode.step()
    (dropped,) = [happening for happening in happenings if isinstance(happening, Dropped)]
    assert dropped.request_id == "ill"
    assert "not finite" in dropped.message
    outcome = [happening.token for happening in (*happenings, *steps(decode)) if isinstance(happening, Token)]
    assert outcome == tiny.greedy(PROMPT[:5], 4)[1:]
    assert decode.load().free_blocks == 4


def test_blocks_of_a_request_that_failed_do_not_spoil_the_next_one(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    prefill, decode = make_engine("prefill"), make_engine("decode", blocks=2)
    decode.admit(_work("ill", max_tokens=4))
    decode.step()
    for block in decode.import_target("ill"):
        decode.region.memory[block.index].view(torch.float32).fill_(math.nan)
    decode.imported("ill")
    assert isinstance(decode.step()[0], Dropped)
    work = Work("next", PROMPT[:10], max_tokens=12)
    assert generate(prefill, decode, [work]) == {"next": tiny.greedy(PROMPT[:10], 12)}


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_ids_that_are_not_there_are_ignored(make_engine: EngineMaker, role: str) -> None:
    engine = make_engine(role)
    for call in (engine.cancel, engine.unpin, engine.release, engine.imported):
        call("nobody")
    assert engine.load() == EMPTY


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_work_that_is_invalid_is_neither_too_long_nor_too_early(make_engine: EngineMaker, role: str) -> None:
    with pytest.raises(Refused) as refusal:
        make_engine(role).admit(replace(_work(), prompt=()))
    assert type(refusal.value) is Refused


def test_a_decode_leg_needs_the_first_token(make_engine: EngineMaker) -> None:
    with pytest.raises(Refused, match="needs the token that prefill sampled"):
        make_engine("decode").admit(Work("r", PROMPT))


def test_a_full_queue_takes_no_more(make_engine: EngineMaker) -> None:
    engine = make_engine("decode", max_waiting=1)
    engine.admit(_work("a"))
    with pytest.raises(QueueFull):
        engine.admit(_work("b"))
    assert engine.load() == Load(queued_tokens=21, waiting=1, running=0, free_blocks=64, total_blocks=64, parked=0)


def test_what_never_fits_is_refused(make_engine: EngineMaker) -> None:
    with pytest.raises(TooLong, match="the limit for both together is 24"):
        make_engine("decode", max_model_length=24).admit(_work(max_tokens=5))


def test_nothing_is_ever_parked_here(make_engine: EngineMaker) -> None:
    engine = make_engine("decode")
    engine.admit(_work())
    engine.step()
    with pytest.raises(StaleBlocks, match="request r is not parked here"):
        engine.export("r", ())
