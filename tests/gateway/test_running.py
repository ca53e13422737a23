"""One request over a pair of workers: its legs, its time, its end. Elsewhere: what fails, and what is refused.

The workers here speak the real wire, but follow a script; `test_failover` has real ones.
"""

import asyncio

import pytest
from distserve_testing.scripted_fleets import PROMPT, decode, deployed, generation, legs, prefill
from distserve_testing.scripted_workers import (
    TOKENIZER_DIGEST,
    WAIT_SECONDS,
    decodes,
    fails,
    finishes_at_once,
    prefills,
    says_nothing,
)

from distserve_proto.worker_pb2 import (
    FAILURE_CODE_DEADLINE,
    Load,
    RequestEvent,
    Submit,
)
from distserve_worker.gateway.answer import Answer, Finish
from distserve_worker.gateway.errors import ApiError
from distserve_worker.gateway.fleet import Fleet
from distserve_worker.gateway.running import Runner
from distserve_worker.gateway.workers.attaching import Target


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


async def test_a_deadline_is_not_tried_again(answer: Answer) -> None:
    workers = refusing, idle, _ = prefill(fails(FAILURE_CODE_DEADLINE)), prefill(prefills), decode(decodes(1))
    async with deployed(*workers) as runner:
        with pytest.raises(ApiError, match="scripted") as error:
            await runner.run(generation(), answer)
    assert error.value.problem.status == 504
    assert legs([refusing, idle]) == [["r.1"], []]


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


async def test_workers_with_another_tokenizer_are_no_candidates(answer: Answer) -> None:
    """B20: token ids of another vocabulary would be another text."""
    async with deployed(prefill(), decode()) as runner:
        runner.fleet.tokenizer_digest = "another"
        with pytest.raises(ApiError, match="2 more have another tokenizer than this gateway"):
            await runner.run(generation(), answer)


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
