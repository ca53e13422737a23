"""Tickets are one-shot, expiring and bounded."""

from collections.abc import Callable

import pytest

from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.tickets import Tickets

MakeMemory = Callable[..., Selection]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def nothing() -> None:
    return None


def test_a_ticket_is_good_for_one_transfer(make_memory: MakeMemory) -> None:
    tickets = Tickets(4)
    memory = make_memory(1)
    endings: list[TransferError | None] = []
    ticket = tickets.issue(memory, float("inf"), endings.append)
    assert tickets.redeem(ticket, nothing).selection is memory
    for _ in range(2):
        with pytest.raises(TransferError) as refusal:
            tickets.redeem(ticket, nothing)
        assert refusal.value.fault is Fault.REFUSED
        if not endings:
            tickets.finish(ticket, None)
    assert endings == [None]


def test_a_ticket_nobody_shows_ends_at_its_deadline(make_memory: MakeMemory) -> None:
    """B6: after it the memory is not read any more."""
    clock = Clock()
    tickets = Tickets(4, clock)
    endings: list[TransferError | None] = []
    ticket = tickets.issue(make_memory(1), 105.0, endings.append)
    clock.now = 104.9
    tickets.expire()
    assert not endings
    clock.now = 105.0
    with pytest.raises(TransferError):
        tickets.redeem(ticket, nothing)
    assert [ending.fault for ending in endings if ending] == [Fault.STALLED]


def test_no_more_tickets_than_the_limit(make_memory: MakeMemory) -> None:
    tickets = Tickets(2)
    first = tickets.issue(make_memory(1), float("inf"), lambda _: None)
    tickets.issue(make_memory(1), float("inf"), lambda _: None)
    with pytest.raises(TransferError) as refusal:
        tickets.issue(make_memory(1), float("inf"), lambda _: None)
    assert refusal.value.fault is Fault.BUSY
    tickets.withdraw(first)
    tickets.issue(make_memory(1), float("inf"), lambda _: None)


def test_withdrawing_ends_an_offer_at_once_and_a_transfer_through_its_abort(make_memory: MakeMemory) -> None:
    tickets = Tickets(2)
    endings: list[TransferError | None] = []
    aborted: list[str] = []
    offered = tickets.issue(make_memory(1), float("inf"), endings.append)
    running = tickets.issue(make_memory(1), float("inf"), endings.append)
    tickets.redeem(running, lambda: aborted.append("running"))
    tickets.close()
    assert [ending.fault for ending in endings if ending] == [Fault.ABORTED]
    assert aborted == ["running"]
    tickets.finish(running, None)
    tickets.withdraw(running)
    tickets.withdraw(offered)
    assert len(endings) == 2
