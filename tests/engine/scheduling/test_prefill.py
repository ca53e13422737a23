"""Prefill runs prompts in order of arrival, in batches of bounded new tokens, and keeps their KV until it is taken."""

import pytest
from distserve_testing.driven_scheduler import DrivenScheduler, request_of
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_worker.engine.interface import QueueFull
from distserve_worker.engine.request import Stage
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.interface import Scheduler
from distserve_worker.engine.scheduling.prefill import PrefillScheduler
from distserve_worker.engine.scheduling.rules import PromptRules

PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=24)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "next", "next", "done", "release", "cancel"]), st.integers(0, 9)),
    max_size=50,
)


def _scheduler(
    blocks: int = 64, batch: int = 16, chunk: int | None = None, max_waiting: int = 100, max_prompts: int | None = None
) -> PrefillScheduler:
    return PrefillScheduler(BlockManager(blocks, 4), PromptRules(batch, chunk, max_prompts), max_waiting)


def _driven(scheduler: Scheduler, step_tokens: int = 16, *, cuts: bool = False) -> DrivenScheduler:
    return DrivenScheduler(scheduler, step_tokens=step_tokens, cuts=cuts)


def _add(driven: DrivenScheduler, *lengths: int, salt: str = "") -> None:
    for length in lengths:
        driven.add(request_of(f"r{len(driven.living) + len(driven.ended)}", [0] * length, 5, salt))


def _happen(driven: DrivenScheduler, event: str, choice: int, prompts: list[list[int]]) -> None:
    known = len(driven.living) + len(driven.ended)
    match event:
        case "add" if known < len(prompts):
            driven.add(request_of(f"r{known}", prompts[known], 5, salt="ab"[choice % 7 == 0]))
        case "next" if len(driven.flights) < 3:
            driven.next()
        case "done" if driven.flights:
            driven.done()
        case "release":
            driven.release_parked()
        case "cancel" if driven.living and choice < 5:
            driven.cancel(sorted(driven.living)[choice % len(driven.living)])


@settings(max_examples=100)
@given(
    prompts=st.lists(PROMPTS, min_size=1, max_size=12),
    events=EVENTS,
    blocks=st.integers(6, 20),
    chunk=st.sampled_from([None, 1, 5, 16]),
    failing=st.frozensets(st.sampled_from(["r0", "r1", "r4"])),
    max_prompts=st.sampled_from([None, 1, 3]),
)
def test_every_prompt_ends_in_order_and_bounds_with_its_own_kv(
    prompts: list[list[int]],
    events: list[tuple[str, int]],
    blocks: int,
    chunk: int | None,
    failing: frozenset[str],
    max_prompts: int | None,
) -> None:
    """B5, B7."""
    scheduler = _scheduler(blocks, chunk=chunk, max_prompts=max_prompts)
    driven = DrivenScheduler(scheduler, step_tokens=chunk or 16, cuts=chunk is not None, failing=failing)
    for event, choice in events:
        _happen(driven, event, choice, prompts)
    while len(driven.living) + len(driven.ended) < len(prompts):
        _happen(driven, "add", 1, prompts)
    driven.run_to_the_end(depth=3)
    driven.finish_flights()
    assert scheduler.blocks.free_count == blocks
    assert len(driven.ended) == len(prompts)
    assert (scheduler.waiting, scheduler.running, scheduler.parked, scheduler.queued_tokens) == (0, 0, 0, 0)
    assert not scheduler.can_run()


@pytest.mark.parametrize("chunk", [None, 8])
def test_a_step_has_no_more_prompts_than_it_may_have_scores_of(chunk: int | None) -> None:
    """However short they are."""
    driven = _driven(_scheduler(chunk=chunk, max_prompts=3), step_tokens=chunk or 16, cuts=chunk is not None)
    _add(driven, 1, 2, 1, 1, 1)
    for count in (3, 2):
        step = driven.next()
        assert step is not None
        assert len(step.prompts) == count
        driven.done()


def test_prompts_go_together_up_to_l_m_and_a_long_one_alone() -> None:
    driven = _driven(_scheduler())
    _add(driven, 9, 7, 1, 40, 2)
    steps = [driven.next() for _ in range(4)]
    assert [[chunk.stop for chunk in step.prompts] for step in steps if step] == [[9, 7], [1], [40], [2]]


def test_found_tokens_do_not_count() -> None:
    driven = _driven(_scheduler())
    _add(driven, 9)
    driven.next()
    driven.done()
    _add(driven, 16, 16)
    step = driven.next()
    assert step is not None
    assert [(chunk.start, chunk.stop, chunk.found) for chunk in step.prompts] == [(8, 16, 8), (8, 16, 8)]


def test_nothing_is_found_across_salts() -> None:
    driven = _driven(_scheduler())
    _add(driven, 9)
    driven.next()
    driven.done()
    _add(driven, 9, salt="another key")
    step = driven.next()
    assert step is not None
    assert step.prompts[0].start == 0


def test_a_prompt_whose_logits_are_not_finite_shares_nothing() -> None:
    driven = DrivenScheduler(_scheduler(), step_tokens=16, failing=frozenset({"r0"}))
    _add(driven, 9)
    driven.next()
    driven.done()
    assert driven.ended == ["r0"]
    _add(driven, 9)
    step = driven.next()
    assert step is not None
    assert step.prompts[0].start == 0


def test_a_long_prompt_in_pieces_leaves_the_rest_of_its_last_step_to_others() -> None:
    driven = _driven(_scheduler(chunk=8), 8, cuts=True)
    _add(driven, 18, 3, 9)
    pieces = []
    for _ in range(4):
        step = driven.next()
        assert step is not None
        pieces.append([(chunk.start, chunk.stop, chunk.samples) for chunk in step.prompts])
        driven.done()
    assert pieces == [
        [(0, 8, False)],
        [(8, 16, False)],
        [(16, 18, True), (0, 3, True), (0, 3, False)],
        [(3, 9, True)],
    ]


def test_the_next_piece_of_a_prompt_waits_for_the_one_on_its_way_and_others_do_not() -> None:
    driven = _driven(_scheduler(chunk=8), 8, cuts=True)
    _add(driven, 18, 3)
    driven.next()
    assert driven.scheduler.queued_tokens == 13
    step = driven.next()
    assert step is not None
    assert [chunk.request.request_id for chunk in step.prompts] == ["r1"]
    assert driven.next() is None


def test_of_two_begun_prompts_the_older_goes_on_first() -> None:
    driven = _driven(_scheduler(chunk=8), 8, cuts=True)
    _add(driven, 18, 12)
    for _ in range(2):
        driven.next()
    for _ in range(2):
        driven.done()
    step = driven.next()
    assert step is not None
    assert [(chunk.request.request_id, chunk.start, chunk.stop) for chunk in step.prompts] == [("r0", 8, 16)]


def test_the_head_of_the_queue_waits_for_blocks_and_nobody_overtakes() -> None:
    driven = _driven(_scheduler(blocks=4))
    _add(driven, 8)
    _add(driven, 12, 1, salt="another key")
    driven.next()
    driven.done()
    assert not driven.scheduler.can_run()
    driven.release_parked()
    step = driven.next()
    assert step is not None
    assert [chunk.request.request_id for chunk in step.prompts] == ["r1", "r2"]


def test_a_parked_request_keeps_its_blocks_until_it_is_removed_and_unpinned() -> None:
    scheduler = _scheduler(blocks=4)
    driven = _driven(scheduler)
    _add(driven, 9)
    driven.next()
    driven.done()
    assert (scheduler.parked, scheduler.running, driven.living["r0"].stage) == (1, 0, Stage.PARKED)
    scheduler.blocks.pin("r0")
    driven.cancel("r0")
    assert (scheduler.parked, scheduler.blocks.free_count) == (0, 1)
    scheduler.blocks.unpin("r0")
    assert scheduler.blocks.free_count == 4


def test_a_request_that_is_removed_on_its_way_keeps_its_blocks_until_the_step_is_done() -> None:
    """B5."""
    driven = _driven(_scheduler(blocks=4))
    _add(driven, 9)
    driven.next()
    driven.cancel("r0")
    assert driven.blocks.free_count == 1
    driven.done()
    assert driven.blocks.free_count == 4


def test_a_request_can_be_removed_while_it_waits() -> None:
    scheduler = _scheduler(blocks=4)
    driven = _driven(scheduler)
    _add(driven, 8, 16, 3)
    driven.next()
    driven.cancel("r1")
    scheduler.remove("unknown")
    assert (scheduler.waiting, scheduler.queued_tokens) == (1, 3)
    assert driven.next() is not None


def test_the_queue_is_bounded() -> None:
    scheduler = _scheduler(max_waiting=1)
    scheduler.add(request_of("r0", [0] * 10, 1))
    with pytest.raises(QueueFull, match="1 requests wait for prefill, which is the limit"):
        scheduler.add(request_of("r1", [0], 1))
    assert scheduler.queued_tokens == 10


def test_nothing_is_ever_imported() -> None:
    scheduler: Scheduler = _scheduler()
    scheduler.imported("unknown")
    assert scheduler.parks
    assert scheduler.reserve() == ()
