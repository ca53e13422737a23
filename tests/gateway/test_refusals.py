"""Workers that have no room for a request, or take none any more: a new one is refused, one that has begun waits."""

import asyncio
from collections.abc import Iterable

import pytest
from distserve_testing.scripted_fleets import decode, deployed, generation, legs, prefill
from distserve_testing.scripted_workers import (
    decodes,
    fails,
    listening,
    prefills,
    puts_back,
    says_nothing,
)

from distserve_proto.worker_pb2 import (
    FAILURE_CODE_DRAINING,
    FAILURE_CODE_QUEUE_FULL,
    Load,
    RequestEvent,
    Submit,
)
from distserve_worker.gateway.answer import Answer, Finish
from distserve_worker.gateway.errors import ApiError
from distserve_worker.gateway.routing import Need
from distserve_worker.gateway.running import MAX_ATTEMPTS
from distserve_worker.gateway.workers.attaching import Target


async def test_refusals_cost_no_attempt_while_another_worker_may_take_the_request(answer: Answer) -> None:
    """With more full queues than attempts the one free worker is still found."""
    full = [prefill(fails(FAILURE_CODE_QUEUE_FULL)) for _ in range(MAX_ATTEMPTS + 1)]
    async with deployed(*full, prefill(prefills), decode(decodes(1))) as runner:
        await runner.run(generation(), answer)
    assert answer.tokens == [100, 101]


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


async def test_a_request_that_has_begun_waits_for_a_worker_while_the_only_one_leaves(answer: Answer) -> None:
    """B27: put back, with the one prefill worker refusing all; its successor takes it."""
    leaving, successor = prefill(prefills, fails(FAILURE_CODE_DRAINING)), prefill(prefills)
    second = decode(decodes(2, puts_back), decodes(2))
    async with listening(successor), deployed(leaving, second) as runner:
        running = asyncio.create_task(runner.run(generation(), answer))
        await leaving.until(lambda: len(leaving.submits) == 2)
        runner.fleet.update([Target(worker.address, worker.address) for worker in (leaving, second, successor)])
        await running
    assert answer.tokens == [100, 101, 102, 103, 104, 105]
    assert legs([leaving, successor]) == [["r.1", "r.2"], ["r.3"]]


async def test_a_leaving_worker_goes_on_with_what_has_begun_when_there_is_no_other(answer: Answer) -> None:
    """B27: and gets no new request (B18)."""

    def leaves(submit: Submit) -> Iterable[RequestEvent] | str:
        leaving.load = Load(draining=True)
        return prefills(submit)

    leaving = prefill(leaves, prefills)
    async with deployed(leaving, decode(decodes(2, puts_back), decodes(2))) as runner:
        await runner.run(generation(), answer)
        assert runner.fleet.choose_first(Need(1)) is None
    assert answer.tokens == [100, 101, 102, 103, 104, 105]


@pytest.mark.parametrize("begun", [True, False])
async def test_waiting_for_a_worker_that_stays_has_an_end(answer: Answer, begun: bool) -> None:
    """B3: a new request does not wait at all, its client can come back."""
    acts = [prefills] if begun else []
    leaving = prefill(*acts, fails(FAILURE_CODE_DRAINING))
    async with deployed(leaving, decode(decodes(2, puts_back)), deadline_seconds=1 if begun else 600) as runner:
        with pytest.raises(ApiError, match="there is no other pair to take over") as error:
            await runner.run(generation(), answer)
    assert error.value.problem.status == 503
    assert answer.tokens == ([100, 101, 102] if begun else [])
