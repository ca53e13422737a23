"""A colocated engine runs prompts first or in pieces beside the others, and computes again what had to make room."""

import pytest
from distserve_testing.driven_scheduler import DrivenScheduler, request_of
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_worker.engine.interface import QueueFull
from distserve_worker.engine.request import Stage
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.colocated import ColocatedScheduler
from distserve_worker.engine.scheduling.interface import Scheduler, Step
from distserve_worker.engine.scheduling.rules import BatchRules, PromptRules

REQUESTS = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=14), st.integers(1, 11)), min_size=1, max_size=10
)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["add", "next", "next", "done", "done", "cancel"]), st.integers(0, 11)), max_size=60
)


def _driven(
    blocks: int = 64,
    batch: int = 16,
    chunk: int | None = None,
    rules: BatchRules | None = None,
    failing: frozenset[str] = frozenset(),
) -> DrivenScheduler:
    rules = rules or BatchRules(max_running=8)
    scheduler = ColocatedScheduler(BlockManager(blocks, 4), PromptRules(batch, chunk), rules, max_waiting=100)
    return DrivenScheduler(scheduler, rules.max_running, chunk or batch, cuts=chunk is not None, failing=failing)


def _add(driven: DrivenScheduler, *sizes: tuple[int, int]) -> None:
    """Requests of (tokens of the prompt, tokens to come), each with a text of its own."""
    for tokens, new in sizes:
        known = len(driven.living) + len(driven.ended)
        driven.add(request_of(f"r{known}", [0] * tokens, new, salt=str(known)))


def _step(driven: DrivenScheduler) -> Step:
    step = driven.next()
    assert step is not None
    return step


def _names(step: Step) -> tuple[list[str], list[str]]:
    """Who computes a prompt, and who runs."""
    return [chunk.request.request_id for chunk in step.prompts], [request.request_id for request in step.running]


def _step_and_done(driven: DrivenScheduler) -> tuple[list[str], list[str]]:
    names = _names(_step(driven))
    driven.done()
    return names


@settings(max_examples=180)
@given(
    sizes=REQUESTS,
    events=EVENTS,
    blocks=st.integers(6, 14),
    chunk=st.sampled_from([None, None, 1, 4, 7]),
    rules=st.builds(BatchRules, st.integers(1, 6), st.integers(0, 2), st.integers(1, 3)),
    failing=st.frozensets(st.sampled_from(["r0", "r1", "r4"])),
)
def test_every_request_ends_in_order_and_bounds_with_its_own_kv(
    sizes: list[tuple[list[int], int]],
    events: list[tuple[str, int]],
    blocks: int,
    chunk: int | None,
    rules: BatchRules,
    failing: frozenset[str],
) -> None:
    """B5, B7."""
    driven = _driven(blocks, 16, chunk, rules, failing)
    coming = [
        request_of(f"r{number}", prompt, new, salt="ab"[number % 5 == 0]) for number, (prompt, new) in enumerate(sizes)
    ]
    for event, choice in events:
        match event:
            case "add" if coming:
                driven.add(coming.pop(0))
            case "next" if len(driven.flights) < rules.lanes:
                driven.next()
            case "done" if driven.flights:
                driven.done()
            case "cancel" if driven.living and choice < 4:
                driven.cancel(sorted(driven.living)[choice % len(driven.living)])
    for request in coming:
        driven.add(request)
    driven.run_to_the_end(depth=rules.lanes)
    driven.finish_flights()
    scheduler = driven.scheduler
    assert scheduler.blocks.free_count == blocks
    assert len(driven.ended) == len(sizes)
    assert (scheduler.waiting, scheduler.running, scheduler.parked, scheduler.queued_tokens) == (0, 0, 0, 0)
    assert not scheduler.can_run()


def test_prompts_go_before_the_next_tokens_of_running_requests() -> None:
    driven = _driven()
    _add(driven, (9, 5), (7, 5), (1, 5))
    assert _step_and_done(driven) == (["r0", "r1"], [])
    assert _step_and_done(driven) == (["r2"], [])
    assert _step_and_done(driven) == ([], ["r0", "r1", "r2"])


def test_running_requests_have_a_turn_in_an_endless_stream_of_prompts() -> None:
    driven = _driven(rules=BatchRules(max_running=3))
    _add(driven, (1, 9))
    steps: list[list[str]] = []
    for _ in range(32):
        _add(driven, (16, 1))
        steps.append(_step_and_done(driven)[1])
    assert steps == [[], [], [], ["r0"]] * 8
    assert "r0" in driven.ended


def test_pieces_of_prompts_ride_on_the_steps_of_running_requests() -> None:
    driven = _driven(chunk=6)
    _add(driven, (2, 9), (2, 9), (9, 9), (3, 9))
    assert _step_and_done(driven) == (["r0", "r1", "r2"], [])
    step = _step(driven)
    assert _names(step) == (["r2"], ["r0", "r1"])
    assert [(chunk.start, chunk.stop) for chunk in step.prompts] == [(2, 6)]
    driven.done()
    step = _step(driven)
    assert [(chunk.start, chunk.stop, chunk.samples) for chunk in step.prompts] == [(6, 9, True), (0, 1, False)]
    driven.done()
    assert _step_and_done(driven) == (["r3"], ["r0", "r1", "r2"])


def test_a_budget_used_up_by_running_requests_leaves_none_for_prompts() -> None:
    driven = _driven(chunk=2)
    _add(driven, (1, 2), (1, 2), (1, 2))
    assert _step_and_done(driven) == (["r0", "r1"], [])
    assert _step_and_done(driven) == ([], ["r0", "r1"])
    assert _step_and_done(driven) == (["r2"], [])


def test_lanes_and_prompts_are_on_their_way_together() -> None:
    driven = _driven(rules=BatchRules(max_running=8, lanes=2))
    _add(driven, (1, 9), (1, 9), (1, 9))
    _step_and_done(driven)
    _add(driven, (1, 9))
    assert [_names(_step(driven)) for _ in range(3)] == [(["r3"], []), ([], ["r0", "r2"]), ([], ["r1"])]
    assert not driven.scheduler.can_run()
    assert driven.next() is None


def test_what_had_to_make_room_begins_again_before_all_others_and_finds_what_is_left_of_it() -> None:
    driven = _driven(blocks=5)
    _add(driven, (7, 12), (9, 5))
    _step_and_done(driven)
    _add(driven, (1, 5))
    assert _step_and_done(driven) == ([], ["r0", "r1"])
    assert _step_and_done(driven) == ([], ["r0"])
    put_back = driven.living["r1"]
    assert (put_back.stage, len(put_back.tokens)) == (Stage.WAITING, 11)
    assert driven.scheduler.waiting == 2
    driven.cancel("r0")
    step = _step(driven)
    assert _names(step) == (["r1", "r2"], [])
    assert (step.prompts[0].start, step.prompts[0].stop, step.prompts[0].found) == (8, 11, 0)


def test_a_request_sits_out_while_a_younger_prompt_is_on_its_way_and_goes_on_after_that() -> None:
    driven = _driven(blocks=3, rules=BatchRules(max_running=8, lanes=2))
    _add(driven, (1, 5), (3, 5))
    _step_and_done(driven)
    assert [_names(_step(driven)) for _ in range(2)] == [([], ["r0"]), ([], ["r1"])]
    _add(driven, (1, 5))
    assert _names(_step(driven)) == (["r2"], [])
    driven.done()
    driven.done()
    assert _names(_step(driven)) == ([], ["r0"])
    assert driven.next() is None
    driven.done()
    assert _names(_step(driven)) == ([], ["r1"])
    assert driven.living["r2"].stage is Stage.WAITING


def test_tokens_of_the_output_are_found_too_by_what_had_to_make_room() -> None:
    driven = _driven(blocks=6)
    _add(driven, (5, 13), (9, 7))
    while driven.living["r1"].stage is not Stage.WAITING or not driven.returned:
        _step_and_done(driven)
    driven.cancel("r0")
    (chunk,) = _step(driven).prompts
    assert (chunk.request.request_id, chunk.start, chunk.stop, chunk.found) == ("r1", 12, 13, 0)


def test_what_an_ended_request_has_computed_is_found_by_the_next_turn_of_the_talk() -> None:
    driven = _driven()
    first = request_of("first", [0] * 7, 3)
    driven.add(first)
    while driven.living:
        _step_and_done(driven)
    driven.add(request_of("second", [*first.tokens, 1, 1], 1))
    (chunk,) = _step(driven).prompts
    assert (chunk.start, chunk.stop, chunk.found) == (8, 12, 8)


def test_admission_leaves_spare_blocks_unless_nobody_is_there() -> None:
    driven = _driven(blocks=6, rules=BatchRules(max_running=8, spare=2))
    _add(driven, (20, 4), (1, 1))
    assert _step_and_done(driven) == (["r0"], [])
    assert _step_and_done(driven) == ([], ["r0"])


def test_the_whole_batch_is_bounded_prompts_on_their_way_included() -> None:
    driven = _driven(rules=BatchRules(max_running=2))
    _add(driven, (1, 9), (1, 9), (1, 9))
    assert _names(_step(driven)) == (["r0", "r1"], [])
    assert driven.scheduler.running == 2
    assert not driven.scheduler.can_run()


@pytest.mark.parametrize("chunk", [None, 3])
def test_a_request_can_be_removed_at_every_stage(chunk: int | None) -> None:
    driven = _driven(blocks=8, chunk=chunk, rules=BatchRules(max_running=2))
    _add(driven, (2, 9), (5, 9), (7, 9))
    _step_and_done(driven)
    _step(driven)
    for request_id in ("r0", "r1", "r2"):
        driven.cancel(request_id)
    driven.scheduler.remove("unknown")
    driven.finish_flights()
    assert driven.blocks.free_count == 8
    assert (driven.scheduler.running, driven.scheduler.waiting, driven.scheduler.queued_tokens) == (0, 0, 0)


def test_old_requests_end_however_many_young_ones_come() -> None:
    for chunk in (None, 6):
        driven = _driven(blocks=6, chunk=chunk, rules=BatchRules(max_running=8, lanes=2))
        _add(driven, (1, 22))
        for _ in range(300):
            _add(driven, (3, 6))
            while len(driven.flights) < 2 and driven.next() is not None:
                pass
            driven.done()
            if "r0" in driven.ended:
                break
        assert driven.returned
        assert "r0" in driven.ended


def test_the_queue_is_bounded_but_for_requests_that_are_put_back() -> None:
    rules = BatchRules(max_running=8)
    scheduler: Scheduler = ColocatedScheduler(BlockManager(3, 4), PromptRules(16), rules, max_waiting=1)
    driven = DrivenScheduler(scheduler)
    for name in ("r0", "r1"):
        driven.add(request_of(name, [0] * 3, 7, salt=name))
        driven.next()
        driven.done()
    driven.add(request_of("r2", [0] * 9, 1))
    with pytest.raises(QueueFull, match="1 requests wait for prefill, which is the limit"):
        scheduler.add(request_of("r3", [0], 1))
    while not driven.returned:
        driven.next()
        driven.done()
    assert scheduler.waiting == 2
    driven.run_to_the_end(depth=1)


def test_nothing_is_ever_imported() -> None:
    scheduler: Scheduler = _driven().scheduler
    scheduler.imported("unknown")
    assert not scheduler.parks
    assert scheduler.reserve() == ()
