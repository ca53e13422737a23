"""A worker on a GPU serves KV over whatever can be had there, and over tcp in any case."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from distserve_worker.transfer import opening
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.nccl import pynccl
from distserve_worker.transfer.opening import open_agent


@pytest.mark.parametrize(
    "error",
    [
        ImportError("cannot import name 'runtime' from 'cuda.bindings'"),
        RuntimeError("no NVIDIA driver"),
        OSError("cudaIpcGetMemHandle: cudaErrorNotSupported"),
        AttributeError("'int' object has no attribute 'name'"),
    ],
    ids=["import", "runtime", "os", "attribute"],
)
def test_a_gpu_without_its_own_ways_is_served_over_tcp(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B3: the log says why it is slow."""

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(opening, "CudaIpcServing", fail)
    monkeypatch.setattr(opening, "NcclServing", fail)
    monkeypatch.setattr(pynccl, "is_installed", lambda: True)
    memory = SimpleNamespace(is_cuda=True, device=torch.device("cuda", 0))
    region: Any = SimpleNamespace(memory=memory, file=None)
    with contextlib.closing(open_agent(region, listen("127.0.0.1", 0), "127.0.0.1")) as agent:
        assert [way.transport for way in agent.ways] == ["tcp"]
    assert "cuda_ipc is not served" in caplog.text
    assert "nccl is not served" in caplog.text
    assert str(error) in caplog.text
