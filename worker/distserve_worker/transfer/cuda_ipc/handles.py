"""GPU memory of another process, through CUDA's own handles. Imports nothing of CUDA until it is used."""

import ctypes
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from distserve_worker.transfer.memory.cuda import cuda_errors, on_gpu

if TYPE_CHECKING:
    import torch

_HANDLE_BYTES: Final = 64  # CUDA_IPC_HANDLE_SIZE


class CudaFailed(OSError):  # noqa: N818 - named after what happened
    """A call of the CUDA runtime that failed; the text says which and why."""


@dataclass(frozen=True, slots=True)
class MemoryHandle:
    """What another process needs to map an allocation."""

    device: str  # UUID of the GPU
    handle: bytes  # of the whole allocation
    offset: int  # of the memory meant, in it


def handle_of(memory: "torch.Tensor") -> MemoryHandle:
    """Of the memory that a tensor begins at. Raises `CudaFailed`."""
    import torch
    from cuda.bindings import driver, runtime

    with torch.cuda.device(memory.device):
        # Unlike the runtime, the driver makes no context of its own accord; and a new thread has none, though its GPU
        # counts as the first one, so torch has nothing to change there.
        _done("cudaSetDevice", runtime.cudaSetDevice(memory.device.index))
        base, _ = _done("cuMemGetAddressRange", driver.cuMemGetAddressRange(memory.data_ptr()))
        (handle,) = _done("cudaIpcGetMemHandle", runtime.cudaIpcGetMemHandle(int(base)))
    uuid = str(torch.cuda.get_device_properties(memory.device).uuid)
    return MemoryHandle(uuid, ctypes.string_at(handle.getPtr(), _HANDLE_BYTES), memory.data_ptr() - int(base))


class MappedMemory:
    """The other process's memory as a tensor; it is unmapped when nobody refers to this any more."""

    def __init__(self, of: MemoryHandle, nbytes: int) -> None:
        """Raises `CudaFailed`, `TransferError` where that GPU cannot be seen from this process, or not its memory."""
        import torch
        from cuda.bindings import runtime

        if len(of.handle) != _HANDLE_BYTES:
            raise CudaFailed(f"a memory handle of {len(of.handle)} bytes")
        device = _device(of.device)
        handle = runtime.cudaIpcMemHandle_t()
        ctypes.memmove(handle.getPtr(), of.handle, _HANDLE_BYTES)
        with on_gpu(device):
            opened = runtime.cudaIpcOpenMemHandle(handle, runtime.cudaIpcMemLazyEnablePeerAccess)
            (base,) = _done("cudaIpcOpenMemHandle", opened)
            weakref.finalize(self, _unmap, device, int(base))
            self.tensor = torch.as_tensor(_Array(int(base) + of.offset, nbytes), device=device)


def _unmap(device: "torch.device", base: int) -> None:
    import torch
    from cuda.bindings import runtime

    with torch.cuda.device(device):
        runtime.cudaIpcCloseMemHandle(base)


class _Array:
    """Bytes on a GPU in the form that torch takes over from other libraries."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "strides": None,
            "version": 3,
        }


@cuda_errors()
def _device(uuid: str) -> "torch.device":
    """The GPU as this process counts them."""
    import torch

    for index in range(torch.cuda.device_count()):
        if str(torch.cuda.get_device_properties(index).uuid) == uuid:
            return torch.device("cuda", index)
    raise CudaFailed(f"GPU {uuid} is not among the {torch.cuda.device_count()} that this process sees")


def _done(name: str, result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a call. Raises `CudaFailed`."""
    status, *values = result
    if int(status) != 0:
        raise CudaFailed(f"{name}: {status.name}")
    return tuple(values)
