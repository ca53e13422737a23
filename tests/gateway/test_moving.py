"""One request over workers that fail, in ways that real ones cannot be made to on demand: it goes on with others."""

from collections.abc import Iterable

import pytest
from distserve_testing.scripted_fleets import PROMPT, decode, deployed, generation, legs, prefill
from distserve_testing.scripted_workers import (
    HANG_UP,
    Act,
    decodes,
    fails,
    hangs_up,
    prefills,
    says_nothing,
)

from distserve_proto.worker_pb2 import (
    FAILURE_CODE_DRAINING,
    FAILURE_CODE_INTERNAL,
    FAILURE_CODE_KV_LOST,
    FAILURE_CODE_KV_UNREACHABLE,
    FAILURE_CODE_NOT_FINITE,
    FAILURE_CODE_QUEUE_FULL,
    FAILURE_CODE_TOO_LONG,
    RequestEvent,
    Submit,
    TokenLogprobs,
)
from distserve_worker.gateway.answer import Answer
from distserve_worker.gateway.errors import ApiError
from distserve_worker.gateway.running import MAX_ATTEMPTS


def with_logprobs(act: Act) -> Act:
    """The log probability of token 100 is -100, and so on."""

    def told(submit: Submit) -> Iterable[RequestEvent] | str:
        events = act(submit)
        for event in () if isinstance(events, str) else events:
            event.logprobs.extend(TokenLogprobs(logprob=-token) for token in event.tokens)
        return events

    return told


async def test_log_probabilities_are_neither_lost_nor_repeated_when_a_request_moves(answer: Answer) -> None:
    """B13 and B12: the first token has its own too."""
    first = prefill(with_logprobs(prefills), with_logprobs(prefills))
    dies, good = decode(with_logprobs(decodes(2, hangs_up))), decode(with_logprobs(decodes(2)))
    async with deployed(first, dies, good) as runner:
        await runner.run(generation(), answer)
    piece = answer.take()
    assert piece is not None
    assert [one.token for one in piece.chosen] == answer.tokens == [100, 101, 102, 103, 104, 105]
    assert [one.logprobs.logprob for one in piece.chosen] == [-token for token in answer.tokens]


@pytest.mark.parametrize("lost", [hangs_up, fails(FAILURE_CODE_INTERNAL)], ids=["stream", "failure"])
async def test_a_failed_decode_leg_goes_on_elsewhere_at_the_exact_next_token(answer: Answer, lost: Act) -> None:
    """B13: prompt and tokens so far are prefilled again; limit and seed carry over."""
    workers = first, _, good = prefill(prefills, prefills), decode(decodes(3, lost)), decode(decodes(2))
    async with deployed(*workers) as runner:
        await runner.run(generation(max_tokens=7), answer)
    again = first.submits[1]
    assert answer.tokens == [100, 101, 102, 103, 104, 105, 106]
    assert (list(again.prompt), list(again.output)) == (list(PROMPT), [100, 101, 102, 103])
    assert (again.max_tokens, again.sampling.seed) == (7, 9)
    assert list(good.submits[0].output) == [100, 101, 102, 103, 104]
    assert legs(workers) == [["r.1", "r.2"], ["r.1"], ["r.2"]]
    assert (answer.stages.prefill, answer.stages.transfer, answer.kv_bytes) == (2, 4, 14)


async def test_numbers_that_a_decode_leg_lost_are_computed_again(answer: Answer) -> None:
    """Its KV, or its device, may be to blame."""
    ill, good = decode(fails(FAILURE_CODE_NOT_FINITE)), decode(decodes(1))
    async with deployed(prefill(prefills, prefills), ill, good) as runner:
        await runner.run(generation(), answer)
    assert answer.tokens[:2] == [100, 101]


async def test_what_the_model_has_no_answer_to_is_not_tried_elsewhere(answer: Answer) -> None:
    first, second = (prefill(fails(FAILURE_CODE_NOT_FINITE)) for _ in range(2))
    third, fourth = (decode(decodes(1)) for _ in range(2))
    async with deployed(first, second, third, fourth) as runner:
        with pytest.raises(ApiError, match="The model failed on this request") as error:
            await runner.run(generation(), answer)
    assert (error.value.problem.status, error.value.problem.code) == (500, "model_failed")
    assert error.value.problem.headers == {"x-should-retry": "false"}
    tried = [len(worker.submits) for worker in (first, second, third, fourth)]
    assert (sum(tried[:2]), sum(tried[2:])) == (1, 0)


@pytest.mark.parametrize(
    "refuses",
    [hangs_up, *map(fails, (FAILURE_CODE_INTERNAL, FAILURE_CODE_QUEUE_FULL, FAILURE_CODE_DRAINING))],
    ids=["hang up", "internal", "queue full", "draining"],
)
async def test_a_failed_prefill_leg_goes_to_another_worker(answer: Answer, refuses: Act) -> None:
    """B13: before the first byte."""
    workers = bad, good, _ = prefill(refuses), prefill(prefills), decode(decodes(1))
    async with deployed(*workers) as runner:
        await runner.run(generation(), answer)
    assert answer.tokens == [100, 101]
    assert legs([bad, good]) == [["r.1"], ["r.2"]]


@pytest.mark.parametrize(
    "refuses",
    [
        hangs_up,
        *map(
            fails,
            (
                FAILURE_CODE_INTERNAL,
                FAILURE_CODE_QUEUE_FULL,
                FAILURE_CODE_DRAINING,
                FAILURE_CODE_KV_UNREACHABLE,
                FAILURE_CODE_TOO_LONG,
            ),
        ),
    ],
    ids=["hang up", "internal", "queue full", "draining", "unreachable", "too long"],
)
async def test_kv_that_a_decode_worker_has_not_taken_goes_to_the_next_one(answer: Answer, refuses: Act) -> None:
    """B3: the prompt is not prefilled again."""
    workers = first, bad, good = prefill(prefills), decode(refuses), decode(decodes(1))
    async with deployed(*workers) as runner:
        await runner.run(generation(), answer)
    assert answer.tokens == [100, 101]
    assert legs(workers) == [["r.1"]] * 3
    assert bad.submits[0].kv == good.submits[0].kv
    assert first.cancelled == []


async def test_a_prefill_worker_that_no_decode_worker_can_reach_is_left_for_another(answer: Answer) -> None:
    """B3: else it would have the shortest queue for ever."""
    unreachable = fails(FAILURE_CODE_KV_UNREACHABLE)
    workers = prefill(prefills), prefill(prefills), decode(unreachable, decodes(1))
    async with deployed(*workers) as runner:
        await runner.run(generation(), answer)
    assert legs(workers) == [["r.1"], ["r.2"], ["r.1", "r.2"]]


async def test_parked_kv_is_freed_when_no_decode_worker_takes_it(answer: Answer) -> None:
    """B3 and B5."""
    first, bad = prefill(prefills), decode(fails(FAILURE_CODE_INTERNAL))
    async with deployed(first, bad) as runner:
        with pytest.raises(ApiError, match="no other pair to take over"):
            await runner.run(generation(), answer)
        await first.until_cancelled("r.1")


async def test_a_lost_prefill_worker_is_noticed_while_decode_still_waits_for_its_kv(answer: Answer) -> None:
    """B3: the decode leg is cancelled at once, not when its lease is found to be over."""
    dies = prefill(lambda submit: [*prefills(submit), RequestEvent(request_id=HANG_UP)])
    good, waits = prefill(prefills), decode(says_nothing, decodes(1))
    async with deployed(dies, good, waits) as runner:
        await runner.run(generation(), answer)
        await waits.until_cancelled("r.1")
    assert answer.tokens == [100, 101, 102]
    assert list(good.submits[0].output) == [100]


async def test_a_lost_kv_can_be_made_again_by_the_same_pair(answer: Answer) -> None:
    """B6: a lost KV says nothing against either worker."""
    workers = prefill(prefills, prefills), decode(fails(FAILURE_CODE_KV_LOST), decodes(1))
    async with deployed(*workers) as runner:
        await runner.run(generation(), answer)
    assert answer.tokens == [100, 101, 102]
    assert legs(workers) == [["r.1", "r.2"], ["r.1", "r.2"]]


async def test_attempts_are_bounded(answer: Answer) -> None:
    """B3: what was produced stays, and the error names the last failure."""
    loses = fails(FAILURE_CODE_KV_LOST)
    workers = prefill(*[prefills] * MAX_ATTEMPTS), decode(*[loses] * MAX_ATTEMPTS)
    async with deployed(*workers) as runner:
        with pytest.raises(ApiError, match=r"scripted\) and 3 attempts have failed") as error:
            await runner.run(generation(), answer)
    assert (error.value.problem.status, error.value.problem.code) == (503, "worker_failed")
    assert error.value.problem.retry_after_seconds is not None
    assert answer.tokens == [100, 101, 102]


async def test_a_request_that_the_gateway_let_through_is_never_the_clients_fault(answer: Answer) -> None:
    """B4: a worker that calls it too long is left for another; without one the fault is ours."""
    async with deployed(prefill(fails(FAILURE_CODE_TOO_LONG)), decode()) as runner:
        with pytest.raises(ApiError, match="scripted") as error:
            await runner.run(generation(), answer)
    assert error.value.problem.status == 503
