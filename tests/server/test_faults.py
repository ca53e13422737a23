"""Every way in which an engine ends has the reason that somebody can do something about."""

import pytest

from distserve_proto.contract import ExitReason
from distserve_worker.engine.blueprint import ConfigurationInvalid, ModelDoesNotFit
from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.faults import failure_of


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ModelDoesNotFit("a step needs more memory"), "ModelDoesNotFit: a step needs more memory"),
        (ConfigurationInvalid("tp is 5"), "ConfigurationInvalid: tp is 5"),
        (WorkerFailure(ExitReason.MODEL_INVALID, "rank 1: no"), "ModelInvalid: rank 1: no"),
        (ZeroDivisionError("by zero"), "EngineFailed: ZeroDivisionError: by zero"),
    ],
    ids=["memory", "shape", "of another rank", "unforeseen"],
)
def test_an_engine_that_was_loaded_ends_with_a_reason(error: BaseException, text: str) -> None:
    assert str(failure_of(error)) == text
