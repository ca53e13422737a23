"""A handle of GPU memory is had in whichever thread a rank opens its transports: CUDA as its manual says, in Python."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch

from distserve_worker.transfer.cuda_ipc.handles import CudaFailed, MemoryHandle, handle_of

BASE: Final = 0x7000
OFFSET: Final = 512
HANDLE: Final = bytes(range(64))


class Status(int):
    name = "CUDA_ERROR_INVALID_CONTEXT"


OK, INVALID_CONTEXT = Status(0), Status(201)


class Cuda:
    """Its driver and its runtime, where the GPU of a new thread is 0, and the thread has no context yet."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._thread = threading.local()

    @contextlib.contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        """torch's guard: what is so already it leaves alone."""
        before = getattr(self._thread, "device", 0)
        if before != device.index:
            self.cudaSetDevice(device.index)
        yield
        self._thread.device = before

    def cudaSetDevice(self, index: int) -> tuple[Status]:  # noqa: N802 - CUDA's name, as those below
        if index >= self._gpus:
            return (INVALID_CONTEXT,)
        self._thread.device = self._thread.context = index
        return (OK,)

    def cuMemGetAddressRange(self, _: int) -> tuple[Status, int, int]:  # noqa: N802
        has_context = getattr(self._thread, "context", None) is not None
        return OK if has_context else INVALID_CONTEXT, BASE, 4096

    def cudaIpcGetMemHandle(self, base: int) -> tuple[Status, Any]:  # noqa: N802
        assert base == BASE
        return OK, SimpleNamespace(getPtr=lambda: HANDLE)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda(gpus=2)
    properties = SimpleNamespace(uuid="GPU-1")
    guard = SimpleNamespace(device=made.device, get_device_properties=lambda _: properties)
    monkeypatch.setattr(torch, "cuda", guard)
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=made, runtime=made))
    return made


def handle_in_a_new_thread(index: int) -> MemoryHandle:
    memory: Any = SimpleNamespace(device=torch.device("cuda", index), data_ptr=lambda: BASE + OFFSET)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(handle_of, memory).result()


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("index", [0, 1])
def test_a_new_thread_has_a_handle_of_the_memory_of_any_gpu(index: int) -> None:
    """B3: else the rank on the first one would serve its pod over tcp."""
    assert handle_in_a_new_thread(index) == MemoryHandle("GPU-1", HANDLE, OFFSET)


@pytest.mark.usefixtures("cuda")
def test_a_gpu_that_cannot_be_had_is_named_as_such() -> None:
    with pytest.raises(CudaFailed, match="cudaSetDevice: CUDA_ERROR"):
        handle_in_a_new_thread(2)
