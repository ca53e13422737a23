"""A request that ends the workers that compute it, as one for which they have no memory may: it ends two at most."""

import pytest
from distserve_testing.scripted_fleets import decode, deployed, generation, legs, prefill
from distserve_testing.scripted_workers import (
    HANG_UP,
    Act,
    ScriptedWorker,
    begins,
    decodes,
    fails,
    hangs_up,
    prefills,
    says_nothing,
)

from distserve_proto.worker_pb2 import FAILURE_CODE_INTERNAL, PHASE_COLOCATED, RequestEvent, Submit
from distserve_worker.gateway.answer import Answer
from distserve_worker.gateway.errors import ApiError
from distserve_worker.gateway.running import Runner

ENDS = pytest.mark.parametrize("ends", [hangs_up, fails(FAILURE_CODE_INTERNAL)], ids=["stream", "failure"])


async def refused(runner: Runner, answer: Answer) -> ApiError:
    with pytest.raises(ApiError, match="2 workers have failed as they began to compute this request") as error:
        await runner.run(generation(), answer)
    assert (error.value.problem.status, error.value.problem.code) == (500, "workers_ended")
    assert error.value.problem.headers == {"x-should-retry": "false"}
    return error.value


@ENDS
async def test_a_prompt_that_has_ended_two_prefill_workers_does_not_come_to_a_third(answer: Answer, ends: Act) -> None:
    workers = prefill(begins(ends)), prefill(begins(ends)), prefill(prefills), decode(decodes(1))
    async with deployed(*workers) as runner:
        await refused(runner, answer)
    assert legs(workers) == [["r.1"], ["r.2"], [], []]


@ENDS
async def test_a_request_that_has_ended_two_decode_workers_does_not_come_to_a_third(answer: Answer, ends: Act) -> None:
    """B3: after the first byte too; what was produced stays."""
    first, *others = prefill(prefills, prefills), decode(decodes(0, ends)), decode(decodes(0, ends)), decode(decodes(1))
    async with deployed(first, *others) as runner:
        await refused(runner, answer)
    assert legs(others) == [["r.1"], ["r.2"], []]
    assert answer.tokens == [100, 101]


@ENDS
async def test_a_request_that_came_on_before_each_of_its_workers_ended_goes_on(answer: Answer, ends: Act) -> None:
    """B13: nodes go one after the other, and a long request is on all of them."""
    first, *others = prefill(*[prefills] * 3), decode(decodes(1, ends)), decode(decodes(1, ends)), decode(decodes(1))
    async with deployed(first, *others) as runner:
        await runner.run(generation(), answer)
    assert legs(others) == [["r.1"], ["r.2"], ["r.3"]]
    assert answer.tokens == [100, 101, 102, 103, 104, 105]


async def test_a_prompt_counts_on_colocated_workers_too(answer: Answer) -> None:
    workers = [ScriptedWorker(PHASE_COLOCATED, begins(act)) for act in (hangs_up, decodes(0, hangs_up), decodes(1))]
    async with deployed(*workers) as runner:
        await refused(runner, answer)
    assert legs(workers) == [["r.1"], ["r.2"], []]


async def test_one_of_each_role_is_two(answer: Answer) -> None:
    workers = prefill(begins(hangs_up)), prefill(prefills), decode(decodes(0, hangs_up)), decode(decodes(1))
    async with deployed(*workers) as runner:
        await refused(runner, answer)
    assert legs(workers) == [["r.1"], ["r.2"], ["r.2"], []]


async def test_what_was_only_queued_on_workers_that_ended_goes_on(answer: Answer) -> None:
    """B13: somebody else's request may have ended them."""
    workers = prefill(hangs_up), prefill(begins(hangs_up)), prefill(begins(prefills)), decode(decodes(1))
    async with deployed(*workers) as runner:
        await runner.run(generation(), answer)
    assert answer.tokens == [100, 101]
    assert legs(workers) == [["r.1"], ["r.2"], ["r.3"], ["r.3"]]


async def test_what_was_parked_on_workers_that_ended_goes_on(answer: Answer) -> None:
    """B13: nothing of it was computed any more."""

    def parks_and_ends(submit: Submit) -> list[RequestEvent]:
        return [*begins(prefills)(submit), RequestEvent(request_id=HANG_UP)]

    dying = prefill(parks_and_ends), prefill(parks_and_ends)
    good, waits = prefill(prefills), decode(says_nothing, says_nothing, decodes(1))
    async with deployed(*dying, good, waits) as runner:
        await runner.run(generation(), answer)
    assert answer.tokens == [100, 101, 102, 103]
