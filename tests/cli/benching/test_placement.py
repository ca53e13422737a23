"""What the placement benchmark makes of the plans that it found."""

import pytest

from distserve_cli.benching.placement import Row, mean_saving


def row(joint: int, paper: int, paper_holds: bool = True) -> Row:
    return {"joint": {"devices": joint, "holds": True}, "paper": {"devices": paper, "holds": paper_holds}}


def test_devices_are_compared_where_both_fleets_hold_the_rate() -> None:
    assert mean_saving([row(3, 4), row(5, 10), row(4, 1, paper_holds=False)]) == pytest.approx(0.375)


def test_nothing_is_saved_where_there_is_nothing_to_compare() -> None:
    assert mean_saving([row(4, 8, paper_holds=False)]) is None
