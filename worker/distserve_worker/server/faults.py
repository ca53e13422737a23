"""What can be wrong with a model, or with what it runs on, as reasons that a process ends with."""

from collections.abc import Iterator
from contextlib import contextmanager

from distserve_proto.contract import ExitReason
from distserve_worker.engine.blueprint import ConfigurationInvalid, ModelDoesNotFit
from distserve_worker.exiting import WorkerFailure, described, model_faults


@contextmanager
def faults(uri: str) -> Iterator[None]:
    """Put the reason on whatever the engine objects to while the model at `uri` is loaded. Raises `WorkerFailure`."""
    try:
        with model_faults(uri):
            yield
    except ConfigurationInvalid as error:
        raise WorkerFailure(ExitReason.CONFIGURATION_INVALID, str(error)) from error
    except ModelDoesNotFit as error:
        raise WorkerFailure(ExitReason.MODEL_DOES_NOT_FIT, str(error)) from error


def failure_of(error: BaseException) -> WorkerFailure:
    """Why an engine ended that had been loaded: memory that a step did not get has the reason of a model too large."""
    if isinstance(error, WorkerFailure):
        return error
    if isinstance(error, ModelDoesNotFit):
        return WorkerFailure(ExitReason.MODEL_DOES_NOT_FIT, str(error))
    return WorkerFailure(ExitReason.ENGINE_FAILED, described(error))
