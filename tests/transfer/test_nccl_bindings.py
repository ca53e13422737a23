"""What NVIDIA's bindings really take and give. `make test-gpu` installs them and runs this, which needs no GPU."""

import pytest
from distserve_testing.stub_nccl import IN_PROGRESS, SUCCESS, SYSTEM_ERROR, meet

from distserve_worker.transfer.nccl import pynccl

pytestmark = pytest.mark.skipif(
    not pynccl.is_installed(), reason="nccl needs the extra gpu, which `make test-gpu` installs: nccl4py is missing"
)

STATE = "ncclCommGetAsyncError"
MEETING = ["ncclGetUniqueId", "ncclCommInitRankScalable"]


def test_a_call_is_over_when_the_state_of_its_communicator_says_so() -> None:
    met = meet([IN_PROGRESS, IN_PROGRESS, SUCCESS, IN_PROGRESS, SUCCESS])
    assert met.error is None
    assert met.calls == (*MEETING, STATE, STATE, STATE, "ncclRecv", STATE, STATE, "ncclCommAbort")


@pytest.mark.parametrize(
    ("states", "during"),
    [([IN_PROGRESS, SYSTEM_ERROR], "ncclCommInitRank"), ([SUCCESS, IN_PROGRESS, SYSTEM_ERROR], "ncclRecv")],
    ids=["meeting", "receiving"],
)
def test_a_communicator_that_fails_is_an_error_of_the_transfer(states: list[int], during: str) -> None:
    """B3: so the next way is tried."""
    met = meet(states)
    assert met.error == f"closed: {during}: unhandled system error (2)"
    assert met.calls[-2:] == (STATE, "ncclCommAbort")


@pytest.mark.parametrize(
    ("states", "begun"),
    [([IN_PROGRESS], MEETING), ([SUCCESS, IN_PROGRESS], [*MEETING, STATE, "ncclRecv"])],
    ids=["meeting", "receiving"],
)
def test_what_does_not_end_is_aborted_at_its_deadline(states: list[int], begun: list[str]) -> None:
    """B3: neither a meeting nor a transfer waits for its peer for ever."""
    met = meet(states, patience=2)
    assert met.error == "stalled: too slow"
    assert met.calls == (*begun, STATE, STATE, STATE, "ncclCommAbort")
