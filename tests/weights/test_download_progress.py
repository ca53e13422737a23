"""How far a download is, out of bars as the hub's library makes them."""

import logging

import pytest

from distserve_worker.weights.download_progress import Bar, Tally

MB = 1_000_000


class Told:
    """A tally and what its listener has heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int]] = []
        self.tally = Tally("hf://a/b", lambda done, total: self.heard.append((done, total)))

    def bytes_of(self, total: int) -> Bar:
        return self.tally.bar(desc="bytes", total=total, unit="B", unit_scale=True)


def test_bytes_are_told_and_files_are_not() -> None:
    told = Told()
    files, network, disk = told.tally.bar(total=2), told.bytes_of(100), told.bytes_of(100)
    files.update()
    network.update(40)
    disk.update(30)
    assert told.heard == [(40, 100), (40, 100)]


def test_the_total_grows_with_the_files_that_are_begun() -> None:
    told = Told()
    bar = told.bytes_of(0)
    bar.update(5)
    assert not told.heard  # nobody knows of how many
    bar.total += 50
    bar.update(5)
    bar.total += 50
    bar.update(None)
    assert told.heard == [(10, 50), (10, 100)]


def test_bytes_that_had_to_be_given_back_count_no_more() -> None:
    told = Told()
    bar = told.bytes_of(100)
    bar.update(60)
    bar.update(-60)
    assert told.heard[-1] == (0, 100)


def test_the_log_has_a_line_for_every_tenth_and_none_for_little(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    small, large = Told(), Told()
    small.bytes_of(MB).update(MB)
    bar = large.bytes_of(1000 * MB)
    for _ in range(1000):
        bar.update(MB)
    assert caplog.messages == [f"downloading hf://a/b: {done} of 1000 MB" for done in range(100, 1001, 100)]


def test_how_a_bar_looks_is_ignored() -> None:
    with Told().bytes_of(1) as bar:
        bar.set_description("Reconstructing")
        bar.set_postfix_str("1 B/s", refresh=False)
        bar.refresh()
        bar.close()
    assert not bar.format_dict
