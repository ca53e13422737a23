"""What can be wrong with a model, or with what it runs on, as reasons that a process ends with."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from distserve_proto.contract import ExitReason
from distserve_worker.engine.blueprint import ConfigurationInvalid, ModelDoesNotFit
from distserve_worker.exiting import WorkerFailure, model_faults
from distserve_worker.unforeseen import described

_REASONS: Final[Mapping[type[BaseException], ExitReason]] = {
    ConfigurationInvalid: ExitReason.CONFIGURATION_INVALID,
    ModelDoesNotFit: ExitReason.MODEL_DOES_NOT_FIT,
}


@contextmanager
def faults(uri: str) -> Iterator[None]:
    """Put the reason on whatever the engine objects to while the model at `uri` is loaded. Raises `WorkerFailure`."""
    try:
        with model_faults(uri):
            yield
    except tuple(_REASONS) as error:
        raise failure_of(error) from error


def failure_of(error: BaseException) -> WorkerFailure:
    """Why an engine ended: memory that a step did not get has the reason of a model that is too large."""
    if isinstance(error, WorkerFailure):
        return error
    reason = next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), None)
    if reason is None:
        return WorkerFailure(ExitReason.ENGINE_FAILED, described(error))
    return WorkerFailure(reason, str(error))
