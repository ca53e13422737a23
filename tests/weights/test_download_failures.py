"""Which errors of the hub's library are worth another try."""

import httpx2
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from distserve_worker.weights.download_failures import broke_off


def _from(cause: Exception) -> LocalEntryNotFoundError:
    error = LocalEntryNotFoundError("it was asked for, and is not there")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ReadError("reset"),
        httpx2.RemoteProtocolError("hung up"),
        _from(httpx2.ConnectError("refused")),
        _from(httpx2.ReadTimeout("silent")),
    ],
)
def test_a_connection_that_failed_is_worth_another_try(error: Exception) -> None:
    assert broke_off(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("a mistake"),
        ConnectionError("of whom"),
        PermissionError("read-only"),
        LocalEntryNotFoundError("not there"),
        _from(OfflineModeIsEnabled("as was asked for")),
    ],
)
def test_what_the_next_try_would_meet_again_is_not(error: Exception) -> None:
    assert not broke_off(error)
