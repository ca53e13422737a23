"""Decode admits in order of arrival, and every request ends whatever happens to the others."""

import pytest
from distserve_testing.driven_decode import (
    add,
    add_running,
    driven_decode,
    next_running,
    step_and_done,
)
from distserve_testing.driven_scheduler import DrivenScheduler, request_of
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_worker.engine.interface import QueueFull, Refused
from distserve_worker.engine.scheduling.interface import Scheduler

REQUESTS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=10)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "reserve", "import", "next", "next", "done", "done", "return", "cancel"]),
        st.integers(0, 9),
    ),
    max_size=60,
)


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


@settings(max_examples=150)
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
    driven = driven_decode(blocks, max_running, spare, lanes)
    coming = list(sizes)
    for event, choice in events:
        if event == "add" and coming:
            add(driven, coming.pop())
        _happen(driven, event, choice, lanes)
    add(driven, *coming)
    driven.run_to_the_end(depth=lanes)
    driven.finish_flights()
    scheduler = driven.scheduler
    assert scheduler.blocks.free_count == blocks
    assert len(driven.ended) == len(sizes)
    assert (scheduler.waiting, scheduler.running, scheduler.parked, scheduler.queued_tokens) == (0, 0, 0, 0)
    assert not scheduler.can_run()


def test_admission_leaves_spare_blocks_unless_nobody_is_there() -> None:
    for sizes in [((19, 5), (3, 5)), ((7, 5), (7, 5))]:
        driven = driven_decode(blocks=6, spare=3)
        add(driven, *sizes)
        assert driven.reserve() == 1


def test_admission_leaves_the_blocks_that_running_requests_need_next() -> None:
    driven = driven_decode(blocks=3)
    add_running(driven, (3, 5))
    step_and_done(driven)
    add(driven, (7, 1))
    assert driven.reserve() == 0
    assert step_and_done(driven) == ["r0"]


def test_the_head_of_the_queue_waits_for_blocks_and_nobody_overtakes() -> None:
    driven = driven_decode(blocks=4)
    add(driven, (3, 1), (15, 1), (3, 1))
    assert driven.reserve() == 1
    assert not driven.scheduler.can_run()


def test_the_whole_batch_is_bounded_those_whose_kv_is_on_the_way_included() -> None:
    driven = driven_decode(max_running=3, lanes=2)
    add_running(driven, (1, 5), (1, 5))
    add(driven, (1, 5), (1, 5))
    assert driven.reserve() == 1
    driven.cancel("r0")
    assert driven.reserve() == 1


def test_a_slow_import_holds_up_nobody() -> None:
    driven = driven_decode()
    add(driven, (1, 5), (1, 5))
    driven.reserve()
    driven.finish_import(1)
    assert step_and_done(driven) == ["r1"]
    driven.finish_import(0)
    assert next_running(driven) == ["r0", "r1"]


def test_a_request_that_is_removed_on_its_way_keeps_its_blocks_until_the_step_is_done() -> None:
    """B5."""
    driven = driven_decode(blocks=2)
    add_running(driven, (1, 5))
    next_running(driven)
    driven.cancel("r0")
    assert driven.blocks.free_count == 1
    driven.done()
    assert driven.blocks.free_count == 2


def test_a_request_can_be_removed_at_every_stage() -> None:
    driven = driven_decode(max_running=2)
    add_running(driven, (1, 5))
    add(driven, (1, 5), (9, 5), (1, 5))
    driven.reserve()
    for request_id in ("r0", "r1", "r3"):
        driven.cancel(request_id)
    driven.scheduler.remove("unknown")
    assert (driven.scheduler.running, driven.scheduler.waiting, driven.scheduler.queued_tokens) == (0, 1, 10)
    assert driven.reserve() == 1


def test_the_queue_is_bounded() -> None:
    scheduler: Scheduler = driven_decode(max_waiting=1).scheduler
    scheduler.add(request_of("r0", [0] * 9, 1, output=(1,)))
    with pytest.raises(QueueFull, match="1 requests wait for decode, which is the limit"):
        scheduler.add(request_of("r1", [0], 1, output=(1,)))
    assert scheduler.queued_tokens == 10


def test_a_decode_leg_needs_the_token_that_prefill_sampled() -> None:
    with pytest.raises(Refused, match="needs the token that prefill sampled"):
        driven_decode().add(request_of("r0", [0] * 9, 1))


def test_only_a_reserved_request_can_be_imported() -> None:
    with pytest.raises(AssertionError, match="r0 is not reserved"):
        driven_decode().scheduler.imported("r0")


def test_a_request_that_never_fits_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="r0 never fits"):
        add(driven_decode(blocks=2), (5, 5))
