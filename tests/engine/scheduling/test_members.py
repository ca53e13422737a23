"""Members of a continuous batch take turns in lanes, and the younger make room for the older."""

from distserve_testing.driven_decode import (
    add,
    add_running,
    driven_decode,
    next_and_put_back,
    next_running,
    step_and_done,
)


def test_requests_join_the_lane_with_the_fewest_members_and_lanes_take_turns() -> None:
    driven = driven_decode(lanes=2)
    add_running(driven, *[(1, 9)] * 5)
    assert next_running(driven) == ["r0", "r2", "r4"]
    assert next_running(driven) == ["r1", "r3"]
    assert not driven.scheduler.can_run()
    driven.done()
    driven.cancel("r2")
    driven.cancel("r4")
    add_running(driven, (1, 9))
    assert next_running(driven) == ["r0", "r5"]


def test_a_lane_that_has_just_had_a_step_is_the_last_to_have_another() -> None:
    driven = driven_decode(lanes=3)
    add_running(driven, (1, 9), (1, 9), (1, 9))
    assert [step_and_done(driven) for _ in range(4)] == [["r0"], ["r1"], ["r2"], ["r0"]]


def test_the_youngest_gives_its_blocks_back_when_an_older_one_needs_them() -> None:
    driven = driven_decode(blocks=3)
    add_running(driven, (3, 9), (2, 9), (2, 9))
    step_and_done(driven)
    assert next_and_put_back(driven) == (["r0", "r1"], ["r2"])
    assert driven.blocks.free_count == 0


def test_the_youngest_gives_its_blocks_back_when_it_is_the_one_that_needs_more() -> None:
    driven = driven_decode(blocks=2)
    add_running(driven, (1, 5), (3, 4))
    step_and_done(driven)
    assert next_and_put_back(driven) == (["r0"], ["r1"])


def test_a_request_sits_out_while_the_younger_ones_are_imported_and_goes_on_after_that() -> None:
    driven = driven_decode(blocks=2)
    add_running(driven, (2, 5))
    add(driven, (3, 5))
    driven.reserve()
    step_and_done(driven)
    step_and_done(driven)
    assert not driven.scheduler.can_run()
    assert next_running(driven) == []
    driven.finish_import(0)
    assert next_and_put_back(driven) == (["r0"], ["r1"])


def test_a_request_that_sits_out_holds_up_nobody_older() -> None:
    driven = driven_decode(blocks=3)
    add_running(driven, (1, 5), (3, 5))
    add(driven, (1, 5))
    driven.reserve()
    step_and_done(driven)
    assert next_and_put_back(driven) == (["r0"], [])


def test_a_request_sits_out_while_the_younger_ones_are_on_their_way_and_goes_on_after_that() -> None:
    driven = driven_decode(blocks=2, lanes=2)
    add_running(driven, (3, 4), (1, 5))
    assert [next_running(driven), next_running(driven)] == [["r0"], ["r1"]]
    driven.done()
    assert not driven.scheduler.can_run()
    assert next_running(driven) == []
    driven.done()
    assert next_and_put_back(driven) == (["r0"], ["r1"])


def test_a_step_can_be_nothing_but_requests_that_leave() -> None:
    driven = driven_decode(blocks=2, lanes=2)
    add_running(driven, (1, 5), (3, 4))
    next_running(driven)
    next_running(driven)
    driven.done()
    next_running(driven)
    driven.done()
    assert next_and_put_back(driven) == ([], ["r1"])
    assert len(driven.flights) == 1


def test_a_request_alone_waits_for_blocks_that_only_a_transfer_still_holds() -> None:
    """B5."""
    driven = driven_decode(blocks=2)
    add_running(driven, (2, 5))
    add(driven, (3, 5))
    driven.reserve()
    driven.cancel("r1")
    for _ in range(2):
        step_and_done(driven)
    assert next_running(driven) == []
    driven.finish_import(0)
    assert next_running(driven) == ["r0"]


def test_old_requests_end_however_many_young_ones_come() -> None:
    driven = driven_decode(blocks=6, lanes=2)
    add_running(driven, (1, 22))
    for _ in range(200):
        add(driven, (3, 6))
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
