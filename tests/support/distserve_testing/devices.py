"""Devices that tests compute on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
import torch

# Several ranks on one GPU take turns: a kernel that waits for another rank must leave room for it.
_SHARING: Final = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}


@contextmanager
def shared_device(name: str) -> Iterator[str]:
    """`name`, "cpu" or "cuda", and an environment in which ranks may share GPUs; skips the test where there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("cuda needs a machine with a GPU")
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in _SHARING.items():
            patch.setenv(variable, value)
        yield name
