"""Ranks that are to compute together meet first, in a time of its own."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from distserve_worker.engine.execution import collectives
from distserve_worker.engine.execution.collectives import Meeting, PeerLost
from distserve_worker.engine.parallel import Grid

CPU = torch.device("cpu")


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Meeting:
    """Of two ranks, for a moment."""
    monkeypatch.setattr(collectives, "_MEETING", timedelta(milliseconds=50))
    return Meeting(Grid(2), 0)


def test_a_rank_that_does_not_come_is_lost(meeting: Meeting) -> None:
    """B3: nothing is begun before all are there, so nothing waits for as long as an exchange may take."""
    port = meeting.host()
    with pytest.raises(PeerLost):
        meeting.join(port, CPU)
    assert not dist.is_initialized()


def test_a_host_that_has_gone_is_lost(meeting: Meeting) -> None:
    with pytest.raises(PeerLost):
        meeting.join(1, CPU)
    assert not dist.is_initialized()
