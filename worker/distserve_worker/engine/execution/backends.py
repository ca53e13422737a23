"""Which implementation of torch.distributed carries the exchanges of a kind of device: the same one in every version.

Since torch 2.15 "nccl" names another implementation than before. There all sends and receives of a group go through
one communicator and one stream, so that what a stage sends would wait for what it expects, and it takes a GPU by the
LOCAL_RANK of its environment, which need not be the one that the rank computes on. The one before, which has a
communicator and a stream for each pair of ranks and takes the GPU of the tensors, is called "nccl-legacy" now.
"""

from datetime import timedelta
from typing import Final

import torch.distributed as dist

_OF_CPUS: Final = "gloo"
_WITH_PAIRS: Final = "nccl-legacy"
_WITH_PAIRS_BEFORE: Final = "nccl"  # where the other name is not known, it can only be the same


def backend_of(kind: str) -> str:
    """Torch's name of what carries exchanges between devices of a kind, "cpu" or "cuda"."""
    if kind == "cpu":
        return _OF_CPUS
    return _WITH_PAIRS if dist.is_backend_available(_WITH_PAIRS) else _WITH_PAIRS_BEFORE


def options_of(kind: str, timeout: timedelta) -> "dist.ProcessGroupNCCL.Options | None":
    """New options of one group; None for a kind that needs none.

    Exchanges get streams of high priority, which transfers of KV never get: neither may have to wait for the other.
    """
    if kind == "cpu":
        return None
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options._timeout = timeout  # torch warns when it differs from the group's
    return options
