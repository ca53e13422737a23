"""One request over pairs of workers that fail in ways that real workers cannot be made to fail on demand.

The workers here speak the real wire, but follow a script; `test_failover` has real ones.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest
from distserve_testing.clusters import until
from distserve_testing.scripted_workers import (
    HANG_UP,
    TOKENIZER_DIGEST,
    Act,
    ScriptedWorker,
    decodes,
    fails,
    finishes_at_once,
    hangs_up,
    listening,
    prefills,
    says_nothing,
)

from distserve_proto.worker_pb2 import (
    FAILURE_CODE_DEADLINE,
    FAILURE_CODE_DRAINING,
    FAILURE_CODE_INTERNAL,
    FAILURE_CODE_KV_LOST,
    FAILURE_CODE_KV_UNREACHABLE,
    FAILURE_CODE_QUEUE_FULL,
    FAILURE_CODE_TOO_LONG,
    PHASE_DECODE,
    PHASE_PREFILL,
    Load,
    PutBack,
    RequestEvent,
    Sampling,
    Submit,
    TokenLogprobs,
)
from distserve_worker.gateway.answer import Answer, Finish
from distserve_worker.gateway.deadlines import Deadlines
from distserve_worker.gateway.errors import ApiError
from distserve_worker.gateway.fleet import Fleet
from distserve_worker.gateway.generation import Generation
from distserve_worker.gateway.metrics import Metrics
from distserve_worker.gateway.running import MAX_ATTEMPTS, Runner
from distserve_worker.gateway.workers.attaching import Target
from distserve_worker.text.stop_strings import StopStrings
from distserve_worker.text.tokenizer import ModelText

WAIT_SECONDS = 30
PROMPT = (11, 12, 13)


@asynccontextmanager
async def deployed(
    *workers: ScriptedWorker, deadline_seconds: float = WAIT_SECONDS, milliseconds_per_token: float = 0
) -> AsyncIterator[Runner]:
    """A runner attached to all workers."""
    async with listening(*workers):
        fleet = Fleet("m")
        fleet.tokenizer_digest = TOKENIZER_DIGEST
        fleet.update([Target(worker.address, worker.address) for worker in workers])
        await asyncio.to_thread(until, lambda: len(fleet.candidates()) == len(workers), "all workers are attached")
        deadlines = Deadlines(deadline_seconds, milliseconds_per_token)
        yield Runner(fleet, deadlines, Metrics(fleet.usable_pairs, fleet.ready))
        await fleet.close()


@pytest.fixture
def answer(smollm2_text: ModelText) -> Answer:
    return Answer(smollm2_text.tokenizer.detokenizer(), StopStrings([]), lambda: None)


def generation(max_tokens: int | None = None) -> Generation:
    return Generation("r", PROMPT, max_tokens, Sampling(temperature=1, top_p=1, seed=9), (), frozenset({2}))


def prefill(*acts: Act) -> ScriptedWorker:
    return ScriptedWorker(PHASE_PREFILL, *acts)


def decode(*acts: Act) -> ScriptedWorker:
    return ScriptedWorker(PHASE_DECODE, *acts)


def legs(workers: Sequence[ScriptedWorker]) -> list[list[str]]:
    return [[submit.request_id for submit in worker.submits] for worker in workers]


async def test_the_decode_leg_carries_the_handle_and_the_first_token(answer: Answer) -> None:
    pair = prefill(prefills), decode(decodes(2))
    async with deployed(*pair) as runner:
        await runner.run(generation(max_tokens=3), answer)
    (first,), (second,) = pair[0].submits, pair[1].submits
    assert (answer.tokens, answer.finish) == ([100, 101, 102], Finish.LENGTH)
    assert (list(first.prompt), list(first.output), first.HasField("kv")) == (list(PROMPT), [], False)
    assert (list(second.prompt), list(second.output)) == (list(PROMPT), [100])
    assert (second.kv.request_id, second.max_tokens, second.sampling.seed) == ("kv of r.1", 3, 9)
    assert pair[0].cancelled == pair[1].cancelled == []


async def test_absent_limits_stay_absent(answer: Answer) -> None:
    """B9."""
    pair = prefill(prefills), decode(decodes(1))
    async with deployed(*pair) as runner:
        await runner.run(generation(), answer)
    assert not any(worker.submits[0].HasField("max_tokens") for worker in pair)


async def test_a_request_that_ends_with_its_first_token_has_no_decode_leg(answer: Answer) -> None:
    """B9."""
    pair = prefill(finishes_at_once), decode()
    async with deployed(*pair) as runner:
        await runner.run(generation(), answer)
    assert (answer.tokens, answer.transport) == ([100], None)
    assert pair[1].submits == []


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


async def test_the_decode_worker_is_chosen_when_the_kv_is_there(answer: Answer) -> None:
    """The one that was the best at the start has got much to do in the meantime."""
    first, busy, free = prefill(), decode(), decode(decodes(1))

    def meanwhile(submit: Submit) -> list[RequestEvent]:
        runner.fleet.session(runner.fleet.candidates()[1]).load.running = 9
        return list(prefills(submit))

    first.do(meanwhile)
    async with deployed(first, busy, free) as runner:
        await runner.run(generation(), answer)
    assert legs([busy, free]) == [[], ["r.1"]]


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


async def test_refusals_cost_no_attempt_while_another_worker_may_take_the_request(answer: Answer) -> None:
    """With more full queues than attempts the one free worker is still found."""
    full = [prefill(fails(FAILURE_CODE_QUEUE_FULL)) for _ in range(MAX_ATTEMPTS + 1)]
    async with deployed(*full, prefill(prefills), decode(decodes(1))) as runner:
        await runner.run(generation(), answer)
    assert answer.tokens == [100, 101]


def puts_back(submit: Submit) -> Iterable[RequestEvent]:
    return [RequestEvent(request_id=submit.request_id, put_back=PutBack())]


@pytest.mark.parametrize("side", ["prefill", "decode"])
async def test_a_request_that_was_put_back_waits_where_the_queues_are_full(answer: Answer, side: str) -> None:
    """B13: for a new one the client can come back, one that has begun would be lost."""
    full = fails(FAILURE_CODE_QUEUE_FULL)
    first = prefill(prefills, full, prefills) if side == "prefill" else prefill(*[prefills] * 3)
    second = decode(decodes(2, puts_back), *([full] if side == "decode" else []), decodes(2))
    async with deployed(first, second) as runner:
        await runner.run(generation(), answer)
    assert answer.tokens == list(range(100, 100 + len(answer.tokens)))
    assert answer.finish is Finish.LENGTH


async def test_a_request_that_has_begun_does_not_wait_for_ever(answer: Answer) -> None:
    full = prefill(prefills, *[fails(FAILURE_CODE_QUEUE_FULL)] * 1000)
    async with deployed(full, decode(decodes(2, puts_back)), deadline_seconds=1) as runner:
        with pytest.raises(ApiError, match="queues of all instances are full"):
            await runner.run(generation(), answer)
    assert answer.tokens == [100, 101, 102]


async def test_when_all_queues_are_full_the_client_is_to_come_back(answer: Answer) -> None:
    workers = prefill(fails(FAILURE_CODE_QUEUE_FULL)), prefill(fails(FAILURE_CODE_QUEUE_FULL)), decode()
    async with deployed(*workers) as runner:
        with pytest.raises(ApiError, match="queues of all instances are full") as error:
            await runner.run(generation(), answer)
    assert error.value.problem.status == 429


async def test_a_deadline_is_not_tried_again(answer: Answer) -> None:
    workers = refusing, idle, _ = prefill(fails(FAILURE_CODE_DEADLINE)), prefill(prefills), decode(decodes(1))
    async with deployed(*workers) as runner:
        with pytest.raises(ApiError, match="scripted") as error:
            await runner.run(generation(), answer)
    assert error.value.problem.status == 504
    assert legs([refusing, idle]) == [["r.1"], []]


async def test_a_request_that_the_gateway_let_through_is_never_the_clients_fault(answer: Answer) -> None:
    """B4: a worker that calls it too long is left for another; without one the fault is ours."""
    async with deployed(prefill(fails(FAILURE_CODE_TOO_LONG)), decode()) as runner:
        with pytest.raises(ApiError, match="scripted") as error:
            await runner.run(generation(), answer)
    assert error.value.problem.status == 503


async def test_requests_that_decode_has_no_place_for_are_refused_before_they_start(answer: Answer) -> None:
    """The client gets a 429 instead of an error in its stream."""
    first, full = prefill(says_nothing), decode()
    full.max_waiting = 1
    async with deployed(first, full) as runner:
        on_its_way = asyncio.create_task(runner.run(generation(), answer))
        await first.until(lambda: bool(first.submits))
        with pytest.raises(ApiError, match="queues of all instances are full") as error:
            await runner.run(generation(), answer)
        on_its_way.cancel()
        await asyncio.gather(on_its_way, return_exceptions=True)
    assert error.value.problem.status == 429
    assert len(first.submits) == 1


async def test_workers_with_another_tokenizer_are_no_candidates(answer: Answer) -> None:
    """B20: token ids of another vocabulary would be another text."""
    async with deployed(prefill(), decode()) as runner:
        runner.fleet.tokenizer_digest = "another"
        with pytest.raises(ApiError, match="2 more have another tokenizer than this gateway"):
            await runner.run(generation(), answer)


async def test_a_silent_leg_ends_at_its_deadline_and_is_cancelled(answer: Answer) -> None:
    """B3 and B15."""
    workers = silent, _ = prefill(says_nothing), decode()
    async with deployed(*workers, deadline_seconds=0.2) as runner:
        with pytest.raises(ApiError, match="did not finish the prefill of this request in time") as error:
            await runner.run(generation(), answer)
        await silent.until_cancelled("r.1")
    assert error.value.problem.status == 504
    assert silent.submits[0].deadline_milliseconds == 200


@pytest.mark.parametrize(("max_tokens", "longest"), [(None, 1000), (40, 43)])
async def test_a_request_has_time_for_all_that_it_may_come_to(
    answer: Answer, max_tokens: int | None, longest: int
) -> None:
    """B9 and B15: without a limit all that the instance holds; so may the requests be that it waits for."""
    first, second = prefill(prefills), decode(decodes(1))
    first.load = Load(queued_tokens=7, parked=2)
    second.load = Load(waiting=1, running=2)
    async with deployed(first, second, milliseconds_per_token=10) as runner:
        await runner.run(generation(max_tokens), answer)
    base = WAIT_SECONDS * 1000
    assert first.submits[0].deadline_milliseconds == base + 10 * (3 + 7 + 2 * 1000)
    assert second.submits[0].deadline_milliseconds == base + 10 * (4 * 1000) + base + 10 * longest


async def test_a_deadline_beyond_what_the_wire_can_say_is_the_longest_that_it_can(answer: Answer) -> None:
    busy, _ = pair = prefill(finishes_at_once), decode()
    busy.load = Load(queued_tokens=10**9)
    async with deployed(*pair, milliseconds_per_token=10) as runner:
        await runner.run(generation(max_tokens=1), answer)
    assert busy.submits[0].deadline_milliseconds == 2**32 - 1


async def test_cancelling_a_run_frees_both_workers(answer: Answer) -> None:
    """B5."""
    workers = first, second = prefill(prefills), decode(says_nothing)
    async with deployed(*workers) as runner:
        running = asyncio.create_task(runner.run(generation(), answer))
        await second.until(lambda: bool(second.submits))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await first.until_cancelled("r.1")
        await second.until_cancelled("r.1")


async def test_without_a_pair_the_reason_is_told(answer: Answer) -> None:
    """B1."""
    async with deployed(prefill()) as runner:
        with pytest.raises(ApiError, match="1 prefill and 0 decode instances are ready") as error:
            await runner.run(generation(), answer)
    assert (error.value.problem.status, error.value.problem.code) == (503, "no_usable_pair")


async def test_a_worker_that_serves_another_model_is_not_used(answer: Answer) -> None:
    """B20."""
    workers = prefill(), decode()
    async with deployed(*workers) as runner:
        fleet = Fleet("another model")
        fleet.tokenizer_digest = TOKENIZER_DIGEST
        fleet.update([Target(worker.address, worker.address) for worker in workers])
        with pytest.raises(ApiError, match="0 prefill and 0 decode"):
            await Runner(fleet, runner.deadlines, runner.metrics).run(generation(), answer)
        await fleet.close()


async def test_a_retired_worker_finishes_what_it_has(answer: Answer) -> None:
    """B18 and B27: it is not listed any more, but its stream stays until its requests have ended."""
    first, second = prefill(prefills), decode(says_nothing)
    async with deployed(first, second) as runner:
        running = asyncio.create_task(runner.run(generation(), answer))
        await second.until(lambda: bool(second.submits))
        runner.fleet.update([])
        assert runner.fleet.usable_pairs() == 0
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await second.until_cancelled("r.1")
