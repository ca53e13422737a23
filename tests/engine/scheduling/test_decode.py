"""Decode admits in order of arrival, batches continuously in lanes, and makes room by putting the youngest back."""

import pytest
from distserve_testing.driven_scheduler import DrivenScheduler, request_of
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_worker.engine.interface import QueueFull, Refused
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.decode import DecodeScheduler
from distserve_worker.engine.scheduling.interface import Scheduler, Step
from distserve_worker.engine.scheduling.rules import BatchRules

REQUESTS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=10)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "reserve", "import", "next", "next", "done", "done", "return", "cancel"]),
        st.integers(0, 9),
    ),
    max_size=60,
)


def _driven(
    blocks: int = 64, max_running: int = 8, spare: int = 0, lanes: int = 1, max_waiting: int = 100
) -> DrivenScheduler:
    scheduler = DecodeScheduler(BlockManager(blocks, 4), BatchRules(max_running, spare, lanes), max_waiting)
    return DrivenScheduler(scheduler, max_running)


def _add(driven: DrivenScheduler, *sizes: tuple[int, int]) -> None:
    """Requests of (tokens there are, tokens to come)."""
    for tokens, new in sizes:
        known = len(driven.living) + len(driven.ended) + len(driven.put_back)
        driven.add(request_of(f"r{known}", [0] * tokens, new, output=(1,)))


def _running(driven: DrivenScheduler, *sizes: tuple[int, int]) -> None:
    """The same, with their KV imported."""
    _add(driven, *sizes)
    assert driven.reserve() == len(sizes)
    for _ in sizes:
        driven.finish_import(0)


def _next_and_put_back(driven: DrivenScheduler) -> tuple[list[str], list[str]]:
    step = driven.next() or Step()
    running, put_back = ([request.request_id for request in some] for some in (step.running, step.put_back))
    return running, put_back


def _next(driven: DrivenScheduler) -> list[str]:
    return _next_and_put_back(driven)[0]


def _step_and_done(driven: DrivenScheduler) -> list[str]:
    names = _next(driven)
    driven.done()
    return names


def _happen(driven: DrivenScheduler, event: str, choice: int, lanes: int) -> None:
    match event:
        case "reserve":
            driven.reserve()
        case "import" if driven.importing:
            driven.finish_import(choice)
        case "next" if len(driven.flights) < lanes:
            driven.next()
        case "done" if driven.flights:
            driven.done()
        case "return":
            driven.send_again()
        case "cancel" if driven.living and choice < 4:
            driven.cancel(sorted(driven.living)[choice % len(driven.living)])


@settings(max_examples=150, deadline=None)
@given(
    sizes=REQUESTS,
    events=EVENTS,
    blocks=st.integers(6, 14),
    max_running=st.integers(1, 6),
    spare=st.integers(0, 2),
    lanes=st.integers(1, 3),
)
def test_every_request_ends_in_order_and_bounds_with_its_own_kv(
    sizes: list[tuple[int, int]],
    events: list[tuple[str, int]],
    blocks: int,
    max_running: int,
    spare: int,
    lanes: int,
) -> None:
    """B5, B7."""
    driven = _driven(blocks, max_running, spare, lanes)
    coming = list(sizes)
    for event, choice in events:
        if event == "add" and coming:
            _add(driven, coming.pop())
        _happen(driven, event, choice, lanes)
    _add(driven, *coming)
    driven.run_to_the_end(depth=lanes)
    driven.finish_flights()
    scheduler = driven.scheduler
    assert scheduler.blocks.free_count == blocks
    assert len(driven.ended) == len(sizes)
    assert (scheduler.waiting, scheduler.running, scheduler.parked, scheduler.queued_tokens) == (0, 0, 0, 0)
    assert not scheduler.can_run()


def test_admission_leaves_spare_blocks_unless_nobody_is_there() -> None:
    for sizes in [((19, 5), (3, 5)), ((7, 5), (7, 5))]:
        driven = _driven(blocks=6, spare=3)
        _add(driven, *sizes)
        assert driven.reserve() == 1


def test_admission_leaves_the_blocks_that_running_requests_need_next() -> None:
    driven = _driven(blocks=3)
    _running(driven, (3, 5))
    _step_and_done(driven)
    _add(driven, (7, 1))
    assert driven.reserve() == 0
    assert _step_and_done(driven) == ["r0"]


def test_the_head_of_the_queue_waits_for_blocks_and_nobody_overtakes() -> None:
    driven = _driven(blocks=4)
    _add(driven, (3, 1), (15, 1), (3, 1))
    assert driven.reserve() == 1
    assert not driven.scheduler.can_run()


def test_the_whole_batch_is_bounded_those_whose_kv_is_on_the_way_included() -> None:
    driven = _driven(max_running=3, lanes=2)
    _running(driven, (1, 5), (1, 5))
    _add(driven, (1, 5), (1, 5))
    assert driven.reserve() == 1
    driven.cancel("r0")
    assert driven.reserve() == 1


def test_a_slow_import_holds_up_nobody() -> None:
    driven = _driven()
    _add(driven, (1, 5), (1, 5))
    driven.reserve()
    driven.finish_import(1)
    assert _step_and_done(driven) == ["r1"]
    driven.finish_import(0)
    assert _next(driven) == ["r0", "r1"]


def test_requests_join_the_lane_with_the_fewest_members_and_lanes_take_turns() -> None:
    driven = _driven(lanes=2)
    _running(driven, *[(1, 9)] * 5)
    assert _next(driven) == ["r0", "r2", "r4"]
    assert _next(driven) == ["r1", "r3"]
    assert not driven.scheduler.can_run()
    driven.done()
    driven.cancel("r2")
    driven.cancel("r4")
    _running(driven, (1, 9))
    assert _next(driven) == ["r0", "r5"]


def test_a_lane_that_has_just_had_a_step_is_the_last_to_have_another() -> None:
    driven = _driven(lanes=3)
    _running(driven, (1, 9), (1, 9), (1, 9))
    assert [_step_and_done(driven) for _ in range(4)] == [["r0"], ["r1"], ["r2"], ["r0"]]


def test_the_youngest_gives_its_blocks_back_when_an_older_one_needs_them() -> None:
    driven = _driven(blocks=3)
    _running(driven, (3, 9), (2, 9), (2, 9))
    _step_and_done(driven)
    assert _next_and_put_back(driven) == (["r0", "r1"], ["r2"])
    assert driven.blocks.free_count == 0


def test_the_youngest_gives_its_blocks_back_when_it_is_the_one_that_needs_more() -> None:
    driven = _driven(blocks=2)
    _running(driven, (1, 5), (3, 4))
    _step_and_done(driven)
    assert _next_and_put_back(driven) == (["r0"], ["r1"])


def test_a_request_sits_out_while_the_younger_ones_are_imported_and_goes_on_after_that() -> None:
    driven = _driven(blocks=2)
    _running(driven, (2, 5))
    _add(driven, (3, 5))
    driven.reserve()
    _step_and_done(driven)
    _step_and_done(driven)
    assert not driven.scheduler.can_run()
    assert _next(driven) == []
    driven.finish_import(0)
    assert _next_and_put_back(driven) == (["r0"], ["r1"])


def test_a_request_sits_out_while_the_younger_ones_are_on_their_way_and_goes_on_after_that() -> None:
    driven = _driven(blocks=2, lanes=2)
    _running(driven, (3, 4), (1, 5))
    assert [_next(driven), _next(driven)] == [["r0"], ["r1"]]
    driven.done()
    assert not driven.scheduler.can_run()
    assert _next(driven) == []
    driven.done()
    assert _next_and_put_back(driven) == (["r0"], ["r1"])


def test_a_step_can_be_nothing_but_requests_that_leave() -> None:
    driven = _driven(blocks=2, lanes=2)
    _running(driven, (1, 5), (3, 4))
    _next(driven)
    _next(driven)
    driven.done()
    _next(driven)
    driven.done()
    assert _next_and_put_back(driven) == ([], ["r1"])
    assert len(driven.flights) == 1


def test_a_request_alone_waits_for_blocks_that_only_a_transfer_still_holds() -> None:
    """B5."""
    driven = _driven(blocks=2)
    _running(driven, (2, 5))
    _add(driven, (3, 5))
    driven.reserve()
    driven.cancel("r1")
    _step_and_done(driven)
    _step_and_done(driven)
    assert _next(driven) == []
    driven.finish_import(0)
    assert _next(driven) == ["r0"]


def test_a_request_that_is_removed_on_its_way_keeps_its_blocks_until_the_step_is_done() -> None:
    """B5."""
    driven = _driven(blocks=2)
    _running(driven, (1, 5))
    _next(driven)
    driven.cancel("r0")
    assert driven.blocks.free_count == 1
    driven.done()
    assert driven.blocks.free_count == 2


def test_a_request_can_be_removed_at_every_stage() -> None:
    driven = _driven(max_running=2)
    _running(driven, (1, 5))
    _add(driven, (1, 5), (9, 5), (1, 5))
    driven.reserve()
    for request_id in ("r0", "r1", "r3"):
        driven.cancel(request_id)
    driven.scheduler.remove("unknown")
    assert (driven.scheduler.running, driven.scheduler.waiting, driven.scheduler.queued_tokens) == (0, 1, 10)
    assert driven.reserve() == 1


def test_old_requests_end_however_many_young_ones_come() -> None:
    driven = _driven(blocks=6, lanes=2)
    _running(driven, (1, 22))
    for _ in range(200):
        _add(driven, (3, 6))
        driven.reserve()
        while driven.importing:
            driven.finish_import(0)
        while len(driven.flights) < 2 and driven.next() is not None:
            pass
        driven.done()
        if "r0" in driven.ended:
            break
    assert driven.returned
    assert "r0" in driven.ended


def test_the_queue_is_bounded() -> None:
    scheduler: Scheduler = _driven(max_waiting=1).scheduler
    scheduler.add(request_of("r0", [0] * 9, 1, output=(1,)))
    with pytest.raises(QueueFull, match="1 requests wait for decode, which is the limit"):
        scheduler.add(request_of("r1", [0], 1, output=(1,)))
    assert scheduler.queued_tokens == 10


def test_a_decode_leg_needs_the_token_that_prefill_sampled() -> None:
    with pytest.raises(Refused, match="needs the token that prefill sampled"):
        _driven().add(request_of("r0", [0] * 9, 1))


def test_only_a_reserved_request_can_be_imported() -> None:
    with pytest.raises(AssertionError, match="r0 is not reserved"):
        _driven().scheduler.imported("r0")


def test_a_request_that_never_fits_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="r0 never fits"):
        _add(_driven(blocks=2), (5, 5))
