"""What ends a worker or gateway process before its time, and where the reason is left for Kubernetes."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from distserve_proto.contract import ExitReason
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound

log = logging.getLogger(__name__)

# The kubelet makes this file; where it does not exist there is nobody to read it.
TERMINATION_LOG: Final = Path("/dev/termination-log")
_MAX_MESSAGE_BYTES: Final = 4096  # of which the kubelet keeps no more


class WorkerFailure(Exception):  # noqa: N818 - named after what the pod's condition says
    """The process has to end; `reason` becomes the condition's reason."""

    def __init__(self, reason: ExitReason, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason
        self.text = text


@contextmanager
def model_faults(uri: str) -> Iterator[None]:
    """Put the reason on what is wrong with the model at `uri`. Raises `WorkerFailure`."""
    try:
        yield
    except ModelNotFound as error:
        raise WorkerFailure(ExitReason.MODEL_NOT_FOUND, str(error)) from error
    except ModelInvalid as error:
        raise WorkerFailure(ExitReason.MODEL_INVALID, str(error)) from error
    except OSError as error:  # it is there, but cannot be read
        raise WorkerFailure(ExitReason.MODEL_NOT_FOUND, f"{uri}: {error}") from error


def report(failure: WorkerFailure, termination_log: Path) -> None:
    """Write `Reason: text` to the log and to the termination log."""
    log.error("%s", failure)
    if termination_log == TERMINATION_LOG and not termination_log.exists():
        return
    try:
        whole = str(failure).encode()[:_MAX_MESSAGE_BYTES].decode(errors="ignore")
        termination_log.write_text(whole, encoding="utf-8")
    except OSError as error:
        log.warning("the termination log cannot be written: %s", error)
