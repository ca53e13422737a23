"""Legs and load of one attached stream."""

from typing import Any

import pytest

from distserve_proto.worker_pb2 import (
    PHASE_DECODE,
    PHASE_PREFILL,
    Cancel,
    Description,
    Failed,
    Finished,
    GatewayMessage,
    Load,
    Parked,
    RequestEvent,
    Submit,
    WorkerMessage,
)
from distserve_worker.gateway.routing import Candidate
from distserve_worker.gateway.workers.session import OUTBOX_MESSAGES, Lost, Session, WorkerUnreachableError

Arrivals = list[RequestEvent | Lost]


def _session(phase: Any = PHASE_PREFILL) -> Session:
    description = Description(phase=phase, compatibility_key="key", max_model_length=100, max_request_tokens=80)
    return Session("worker", description)


def _submit(request_id: str = "r", tokens: int = 5) -> Submit:
    return Submit(request_id=request_id, prompt=[1] * tokens)


def _sent(session: Session) -> list[GatewayMessage]:
    return [session.outbox.get_nowait() for _ in range(session.outbox.qsize())]


def _tell(session: Session, *events: RequestEvent, taken: int = 0, **load: Any) -> None:
    session.receive(WorkerMessage(load=Load(**load), events=events, submits_taken=taken))


def _seen(session: Session) -> Candidate:
    return session.candidate(0, retired=False)


def test_events_reach_the_leg_that_they_belong_to() -> None:
    session, mine, other = _session(), Arrivals(), Arrivals()
    session.submit(_submit("mine"), mine.append)
    session.submit(_submit("other"), other.append)
    event = RequestEvent(request_id="mine", tokens=[7])
    _tell(session, event)
    assert (mine, other) == ([event], [])


def test_a_lost_stream_fails_all_its_legs_at_once_and_takes_no_more() -> None:
    """B3 and B8."""
    session, arrivals = _session(), Arrivals()
    session.submit(_submit("a"), arrivals.append)
    session.submit(_submit("b"), arrivals.append)
    session.close("gone")
    assert arrivals == [Lost("gone"), Lost("gone")]
    with pytest.raises(WorkerUnreachableError, match="gone"):
        session.submit(_submit("c"), arrivals.append)


def test_ending_a_leg_cancels_it_on_the_worker_and_silences_it() -> None:
    """B5."""
    session, arrivals = _session(), Arrivals()
    leg = session.submit(_submit(), arrivals.append)
    leg.end()
    _tell(session, RequestEvent(request_id="r", tokens=[7]))
    assert _sent(session)[1:] == [GatewayMessage(cancel=Cancel(request_id="r"))]
    assert arrivals == []
    assert session.idle


@pytest.mark.parametrize("change", [{"finished": Finished()}, {"failed": Failed()}])
def test_a_leg_that_is_over_is_not_cancelled(change: Any) -> None:
    session = _session()
    leg = session.submit(_submit(), Arrivals().append)
    _tell(session, RequestEvent(request_id="r", **change))
    leg.end()
    assert len(_sent(session)) == 1


def test_parked_kv_is_freed_by_a_cancel_unless_it_has_been_pulled() -> None:
    """B5."""
    for pulled in (False, True):
        session = _session()
        leg = session.submit(_submit(), Arrivals().append)
        _tell(session, RequestEvent(request_id="r", parked=Parked()))
        if pulled:
            leg.released()
        leg.end()
        cancelled = _sent(session)[1:]
        assert bool(cancelled) is not pulled


def test_a_pulled_request_does_not_care_about_its_prefill_worker() -> None:
    session, arrivals = _session(), Arrivals()
    session.submit(_submit(), arrivals.append).released()
    session.close("gone")
    assert arrivals == []


def test_work_that_the_worker_did_not_know_of_counts_into_its_queue() -> None:
    session = _session()
    _tell(session, queued_tokens=100)
    session.submit(_submit("a", tokens=5), Arrivals().append)
    session.submit(_submit("b", tokens=7), Arrivals().append)
    assert _seen(session).queued_tokens == 112
    _tell(session, queued_tokens=105, taken=1)
    assert _seen(session).queued_tokens == 112
    _tell(session, queued_tokens=112, taken=2)
    assert _seen(session).queued_tokens == 112


def test_a_report_from_before_a_submission_does_not_hide_it() -> None:
    """Two gateways would both pile their requests on one worker."""
    session = _session()
    session.submit(_submit(tokens=5), Arrivals().append)
    _tell(session, queued_tokens=50, taken=0)
    assert _seen(session).queued_tokens == 55


def test_a_leg_that_has_ended_does_not_count() -> None:
    session = _session()
    session.submit(_submit(tokens=5), Arrivals().append).end()
    assert _seen(session).queued_tokens == 0


def test_decode_load_is_counted_in_requests() -> None:
    session = _session(PHASE_DECODE)
    _tell(session, waiting=1, running=2, free_blocks=4, total_blocks=10)
    session.submit(_submit(), Arrivals().append)
    candidate = session.candidate(3, retired=False)
    assert (candidate.requests, candidate.used_blocks, candidate.last_turn) == (4, 0.6, 3)


def test_the_length_limit_is_the_smaller_of_model_and_memory() -> None:
    """B4."""
    assert _seen(_session()).max_tokens == 80


def test_a_draining_worker_takes_no_new_work_but_finishes_what_it_has() -> None:
    """B18 and B27."""
    session, arrivals = _session(), Arrivals()
    session.submit(_submit(), arrivals.append)
    _tell(session, RequestEvent(request_id="r", tokens=[7]), draining=True)
    assert _seen(session).leaving
    assert len(arrivals) == 1


def test_a_worker_that_reads_nothing_is_given_up_before_messages_pile_up() -> None:
    session, arrivals = _session(), Arrivals()
    for number in range(OUTBOX_MESSAGES):
        session.submit(_submit(str(number)), arrivals.append)
    with pytest.raises(WorkerUnreachableError, match="has not read"):
        session.submit(_submit("last"), arrivals.append)
    assert session.ended.is_set()
    assert len(arrivals) == OUTBOX_MESSAGES


def test_a_cancel_that_cannot_be_sent_ends_the_stream() -> None:
    """B5: only its end makes the worker drop what it could not be told to drop."""
    session, arrivals = _session(), Arrivals()
    legs = [session.submit(_submit(str(number)), arrivals.append) for number in range(OUTBOX_MESSAGES)]
    legs[0].end()
    assert session.ended.is_set()
    assert len(arrivals) == OUTBOX_MESSAGES - 1
