"""Pins the thread pools to the pod's CPU: torch with more threads than cores collapses by an order of magnitude."""

import os
from collections.abc import Mapping
from typing import Final

from distserve_proto.contract import ENV_THREADS, ExitReason
from distserve_worker.exiting import WorkerFailure

_OPENMP: Final = "OMP_NUM_THREADS"


def thread_count(environment: Mapping[str, str]) -> int:
    """Threads for one step: told by the operator, by OpenMP's variable, or one for each usable CPU.

    Raises `WorkerFailure` naming the variable.
    """
    for name in (ENV_THREADS, _OPENMP):
        if text := environment.get(name):
            if not text.isdecimal() or int(text) < 1:
                raise WorkerFailure(ExitReason.CONFIGURATION_INVALID, f"${name} is {text!r}, not a number of threads")
            return int(text)
    return len(os.sched_getaffinity(0))


def pin_libraries(threads: int) -> None:
    """For what reads its environment when it is loaded; call it before torch is imported."""
    for name in (_OPENMP, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)


def pin_torch(threads: int) -> None:
    """Call it on the thread that runs the engine, before the first tensor."""
    import torch

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
