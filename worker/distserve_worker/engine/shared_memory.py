"""Zeroed memory that other processes of the same pod can map: a file without a name, gone with its last process."""

import fcntl
import mmap
import os
import weakref

import torch


def shared_bytes(count: int) -> tuple[torch.Tensor, int]:
    """`count` bytes [count] of uint8, and the descriptor of the file they are; it is closed with the memory.

    The file is anonymous (memfd), so the size of /dev/shm is no limit, and sealed, so that it never shrinks under
    whoever has mapped it. It takes memory page by page, when it is first written. Raises OSError.
    """
    file = os.memfd_create("distserve-kv", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, count)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        mapping = mmap.mmap(file, count)
    except OSError:
        os.close(file)
        raise
    weakref.finalize(mapping, os.close, file)
    return torch.frombuffer(mapping, dtype=torch.uint8), file
