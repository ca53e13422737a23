"""What holds for everything that a thread of a transfer does on a GPU: which one it is, and what its errors become."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distserve_worker.transfer.interface import Fault, TransferError

if TYPE_CHECKING:
    import torch


@contextmanager
def cuda_errors() -> Iterator[None]:
    """Raise `TransferError` for what torch says about a GPU: BUSY when its memory is used up, else CLOSED."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TransferError(Fault.BUSY, f"the GPU has no memory left: {error}") from error
    except RuntimeError as error:
        raise TransferError(Fault.CLOSED, f"the GPU failed: {error}") from error


@contextmanager
def on_gpu(device: "torch.device") -> Iterator[None]:
    """As `cuda_errors`, on a GPU that is this thread's own under it.

    A new thread's is the first one, where merely going back to its stream would take memory.
    """
    import torch

    with cuda_errors(), torch.cuda.device(device):
        yield


@contextmanager
def on_stream(stream: "torch.cuda.Stream") -> Iterator[None]:
    """As `on_gpu`; what is begun under it runs on a stream."""
    import torch

    with on_gpu(stream.device), torch.cuda.stream(stream):
        yield
