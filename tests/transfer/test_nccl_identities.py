"""NCCL's identities are not wasted: each that two ranks do not meet under stays for as long as the process lives."""

import contextlib
import logging

import pytest

from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.nccl import identities
from distserve_worker.transfer.nccl.identities import Attempts, Identities


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    known: list[bytes] = []

    def unique_id() -> bytes:
        known.append(bytes([len(known)]) * 128)
        return known[-1]

    monkeypatch.setattr(identities, "unique_id", unique_id)
    return known


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def fail(attempts: Attempts) -> None:
    with contextlib.suppress(TransferError), attempts.one() as identities, identities.one():
        raise TransferError(Fault.STALLED, "nobody came")


def pause(attempts: Attempts, clock: Clock) -> int:
    """Whole seconds until the next meeting may be."""
    began = clock.now
    while True:
        try:
            attempts.check()
        except TransferError:
            clock.now += 1
        else:
            return round(clock.now - began)


def test_the_pause_after_a_failed_meeting_doubles_up_to_an_hour() -> None:
    clock = Clock()
    attempts = Attempts(Identities(), clock)
    attempts.check()
    pauses = []
    for _ in range(11):
        fail(attempts)
        pauses.append(pause(attempts, clock))
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]


def test_a_meeting_that_succeeds_ends_the_pauses() -> None:
    clock = Clock()
    attempts = Attempts(Identities(), clock)
    fail(attempts)
    fail(attempts)
    with attempts.one():
        pass
    fail(attempts)
    assert pause(attempts, clock) == 10


def test_one_pair_does_not_wait_for_another() -> None:
    shared = Identities()
    unlucky, other = Attempts(shared, Clock()), Attempts(shared, Clock())
    fail(unlucky)
    other.check()
    with pytest.raises(TransferError, match=r"another one in 10 s at the earliest") as raised:
        unlucky.check()
    assert raised.value.fault is Fault.UNREACHABLE


def test_what_fails_after_a_meeting_is_followed_by_a_pause_and_wastes_no_identity(made: list[bytes]) -> None:
    shared, clock = Identities(first_unmet=1), Clock()
    attempts = Attempts(shared, clock)
    for expected in (10, 20):
        with contextlib.suppress(TransferError), attempts.one() as identities:
            with identities.one():
                pass
            raise TransferError(Fault.MISMATCH, "other bytes arrive")
        assert pause(attempts, clock) == expected
    assert len(made) == 2


def test_after_too_many_failed_meetings_nccl_rests_and_says_so_once(
    made: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """The threads and descriptors of a process stay bounded, and a reader is told why it takes another way."""
    shared = Identities(first_unmet=3)
    with shared.one():
        pass
    for _ in range(3):
        fail(Attempts(shared))
    for _ in range(2):
        with pytest.raises(TransferError, match="NCCL rests in this process, for 3 meetings have failed") as raised:
            shared.one().__enter__()
        assert raised.value.fault is Fault.UNREACHABLE
    assert len(made) == 4
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_nccl_comes_back_for_one_meeting_every_six_hours(made: list[bytes]) -> None:
    """So neither is it off for good, nor are there threads and descriptors without end."""
    clock = Clock()
    shared = Identities(first_unmet=3, clock=clock)
    for _ in range(24):
        for _ in range(5):
            fail(Attempts(shared))
        clock.now += 3600
    assert len(made) == 3 + 3
    with shared.one():
        pass


def test_an_identity_that_cannot_be_made_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot() -> bytes:
        raise TransferError(Fault.UNREACHABLE, "NCCL cannot be loaded")

    shared = Identities(first_unmet=1)
    with monkeypatch.context() as patch:
        patch.setattr(identities, "unique_id", cannot)
        fail(Attempts(shared))
    with shared.one() as identity:
        assert identity
