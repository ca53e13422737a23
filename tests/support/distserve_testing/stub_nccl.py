"""NVIDIA's own bindings of NCCL over functions of Python, in a process of its own: neither NCCL nor a GPU is needed.

The bindings are in Cython: their modules give each other C functions in capsules, which are exchanged here.
"""

import contextlib
import ctypes
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch

from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.nccl import pynccl

SUCCESS: Final = 0  # as in nccl.h, like the names and arguments below
SYSTEM_ERROR: Final = 2
IN_PROGRESS: Final = 7

_HERE, _COUNT, _ROOM = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_NUMBER: Final = ctypes.POINTER(ctypes.c_int)
_HANDLE: Final = ctypes.POINTER(ctypes.c_void_p)
_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Met:
    """What became of a `Pair` that received once: the functions of NCCL that it called, and what it raised."""

    calls: tuple[str, ...]
    error: str | None


def meet(states: Sequence[int], patience: int = 1000) -> Met:
    """Over a communicator whose state is `states` one after another, and the last of them from then on.

    Its deadline is when it has been waited for `patience` times.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_met, list(states), patience).result(_SECONDS)


def _met(states: list[int], patience: int) -> Met:
    calls, error = list[str](), None
    waits = iter(range(patience))

    def check() -> None:
        if next(waits, None) is None:
            raise TransferError(Fault.STALLED, "too slow")

    kept = [_exchanged(*entry) for entry in _functions(states, calls)]  # C code points at them
    with _no_cuda():
        try:
            pair = pynccl.Pair(pynccl.unique_id(), pynccl.RECEIVER, torch.device("cuda", 0), check)
            try:
                pair.receive(torch.empty(8, dtype=torch.uint8), check)
            finally:
                pair.abort()
        except TransferError as failed:
            error = str(failed)
    kept.clear()
    return Met(tuple(calls), error)


def _functions(states: list[int], calls: list[str]) -> Iterator[tuple[str, Any, Callable[..., Any]]]:
    """Name, type and what it does."""

    def called(name: str, result: int) -> int:
        calls.append(name)
        return result

    def unique_id(identity: int) -> int:
        ctypes.memset(identity, 1, pynccl.ID_BYTES)
        return called("ncclGetUniqueId", SUCCESS)

    def begin(communicator: Any, *_: object) -> int:
        communicator[0] = 1
        return called("ncclCommInitRankScalable", IN_PROGRESS)

    def state(_: int, number: Any) -> int:
        number[0] = states.pop(0) if len(states) > 1 else states[0]
        return called("ncclCommGetAsyncError", SUCCESS)

    def device(_: int, number: Any) -> int:
        number[0] = 0
        return SUCCESS

    def receive(*_: object) -> int:
        return called("ncclRecv", IN_PROGRESS)

    def abort(_: int) -> int:
        return called("ncclCommAbort", SUCCESS)

    status = ctypes.c_int
    yield "ncclGetUniqueId", ctypes.CFUNCTYPE(status, _HERE), unique_id
    yield "ncclCommInitRankScalable", ctypes.CFUNCTYPE(status, _HANDLE, _COUNT, _COUNT, _COUNT, _HERE, _HERE), begin
    yield "ncclCommGetAsyncError", ctypes.CFUNCTYPE(status, _HERE, _NUMBER), state
    yield "ncclCommCuDevice", ctypes.CFUNCTYPE(status, _HERE, _NUMBER), device
    yield "ncclRecv", ctypes.CFUNCTYPE(status, _HERE, _ROOM, _COUNT, _COUNT, _HERE, _HERE), receive
    yield "ncclCommAbort", ctypes.CFUNCTYPE(status, _HERE), abort
    yield "ncclGetErrorString", ctypes.CFUNCTYPE(_HERE, status), _text


_TEXT: Final = ctypes.create_string_buffer(b"unhandled system error")


def _text(_: int) -> int:
    return ctypes.addressof(_TEXT)


def _exchanged(name: str, kind: Any, does: Callable[..., Any]) -> object:
    """Must be kept, and come before any other module of the bindings is imported."""
    from nccl.bindings._internal import nccl

    name_of, new = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_New
    name_of.restype, name_of.argtypes = ctypes.c_void_p, (ctypes.py_object,)
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    function, table = kind(does), nccl.__pyx_capi__
    capsule = table[f"_{name}"]  # its name is its type in C, and not copied
    table[f"_{name}"] = new(ctypes.cast(function, ctypes.c_void_p), name_of(capsule), None)
    return function, capsule


@contextlib.contextmanager
def _no_cuda() -> Iterator[None]:
    """What `Pair` and the bindings want of CUDA."""
    import nccl.core.communicator
    from cuda.bindings import runtime

    stream, nowhere = SimpleNamespace(cuda_stream=7), SimpleNamespace(device_id=None)  # as of a tensor on no GPU
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pynccl, "on_gpu", contextlib.nullcontext)
        patch.setattr(pynccl, "_own_stream", lambda _: stream)
        patch.setattr(runtime, "cudaStreamDestroy", lambda _: None)
        patch.setattr(nccl.core.communicator, "Device", lambda _: nowhere)
        yield
