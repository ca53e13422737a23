"""NVIDIA's bindings of NCCL as far as moving KV needs them: a communicator of two ranks that never waits for ever.

Imports NCCL when it is first used: without a GPU nobody does.
"""

import contextlib
import importlib.util
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.memory.cuda import on_gpu

if TYPE_CHECKING:
    import torch

ID_BYTES: Final = 128
SENDER: Final = 0
RECEIVER: Final = 1
MOST_BLOCKS: Final = 4  # of a GPU's multiprocessors for each pair, also while one of the two waits for the other
_POLL_SECONDS: Final = 0.0005
_SUCCESS: Final = 0  # of ncclResult_t
_IN_PROGRESS: Final = 7


def is_installed() -> bool:
    """Whether the bindings are there; NCCL itself is found when it is used."""
    return importlib.util.find_spec("nccl") is not None


def require() -> None:
    """Raises `TransferError` where the bindings, or NCCL, are not there."""
    if _told("ncclGetVersion", lambda: _core().get_version().libnccl) is None:
        raise TransferError(Fault.UNREACHABLE, "NCCL cannot be loaded")


def unique_id() -> bytes:
    """`ID_BYTES` that let two ranks find each other. Raises `TransferError`."""
    return bytes(_told("ncclGetUniqueId", lambda: bytes(_core().get_unique_id())))


class Pair:
    """A communicator of a sender and a receiver, used by one thread at a time, whatever GPU that has had before."""

    def __init__(self, identity: bytes, rank: Literal[0, 1], device: "torch.device", check: Callable[[], None]) -> None:
        """Meet the other one; `check` is called again and again and may raise. Raises `TransferError`."""
        core = _core()
        self._device = device
        self._peer = SENDER if rank == RECEIVER else RECEIVER
        self._communicator: Any = core.Communicator()
        self._used: torch.Tensor | None = None  # NCCL reads or writes it until that is over, or was aborted
        config = core.NCCLConfig(blocking=False, max_ctas=MOST_BLOCKS)
        with on_gpu(device):
            self.stream = _own_stream(device)
            try:
                found = core.UniqueId.from_bytes(identity)
                self._begun("ncclCommInitRank", lambda: self._communicator.initialize(2, rank, found, config), check)
            except BaseException:  # whatever it has made so far would stay, and wait for the other one
                with contextlib.suppress(TransferError):
                    self.abort()
                raise

    def wait_for(self, stream: "torch.cuda.Stream") -> None:
        """What is sent or received from now on waits for what was begun on `stream`."""
        with on_gpu(self._device):
            self.stream.wait_stream(stream)

    def send(self, memory: "torch.Tensor", check: Callable[[], None]) -> None:
        """Begin to send contiguous bytes of the GPU; `wait` must follow."""
        self._used = memory
        stream = self.stream.cuda_stream
        self._begun("ncclSend", lambda: self._communicator.send(memory, self._peer, stream=stream), check)

    def receive(self, memory: "torch.Tensor", check: Callable[[], None]) -> None:
        """Begin to fill contiguous bytes of the GPU; `wait` must follow."""
        self._used = memory
        stream = self.stream.cuda_stream
        self._begun("ncclRecv", lambda: self._communicator.recv(memory, self._peer, stream=stream), check)

    def wait(self, check: Callable[[], None]) -> None:
        """Until what was begun is done. Raises `TransferError`."""
        while not self._is_done():
            self._state("waiting for the stream")
            check()
            time.sleep(_POLL_SECONDS)
        self._state("after the stream")
        self._used = None

    def abort(self) -> None:
        """End it, with whatever runs; it cannot be used any more."""
        from cuda.bindings import runtime

        with on_gpu(self._device):
            try:
                _told("ncclCommAbort", self._communicator.abort)
            finally:
                runtime.cudaStreamDestroy(self.stream.cuda_stream)
                self._used = None

    def _is_done(self) -> bool:
        with on_gpu(self._device):
            return self.stream.query()

    def _begun(self, name: str, call: Callable[[], object], check: Callable[[], None]) -> None:
        """A call of a communicator that does not block is over when its state says so."""
        with on_gpu(self._device):
            _told(name, call)
        while not self._state(name):
            check()
            time.sleep(_POLL_SECONDS)

    def _state(self, name: str) -> bool:
        """Whether nothing is in progress. Raises `TransferError` when it has failed."""
        state: int = _told(name, lambda: int(self._communicator.get_async_error()))  # bare, whatever its type says
        if state not in {_SUCCESS, _IN_PROGRESS}:
            text = _told("ncclGetErrorString", lambda: _core().get_error_string(state))
            raise TransferError(Fault.CLOSED, f"{name}: {text} ({state})")
        return state == _SUCCESS


def _own_stream(device: "torch.device") -> "torch.cuda.ExternalStream":
    """One that nobody else uses: torch hands its few out again and again, and who shares one waits for a transfer."""
    import torch
    from cuda.bindings import runtime

    status, stream = runtime.cudaStreamCreateWithFlags(runtime.cudaStreamNonBlocking)
    if int(status) != 0:
        raise TransferError(Fault.CLOSED, f"cudaStreamCreateWithFlags: {status.name}")
    return torch.cuda.ExternalStream(int(stream), device)  # type: ignore[no-untyped-call]


def _core() -> Any:  # noqa: ANN401 - bindings without types
    """The bindings. Raises `TransferError` where they, or NCCL, are not there."""
    try:
        import nccl.core
    except (ImportError, OSError, RuntimeError) as error:
        raise TransferError(Fault.UNREACHABLE, f"NCCL cannot be loaded: {error}") from error
    return nccl.core


def _told(name: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - bindings without types
    """The result of a call of the bindings, for which "in progress" is no error. Raises `TransferError`."""
    try:
        return call()
    except TransferError:
        raise
    except Exception as error:
        raise TransferError(Fault.CLOSED, f"{name}: {error}") from error
