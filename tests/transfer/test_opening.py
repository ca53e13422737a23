"""A worker on a GPU serves KV over whatever can be had there, and over tcp in any case."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from distserve_worker.transfer import opening
from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.nccl import pynccl
from distserve_worker.transfer.opening import open_agent, open_pulling_agent
from distserve_worker.transfer.turns import Turns


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


def test_without_nccl_itself_nobody_is_told_to_meet_over_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader would make an identity for it, and lose it."""

    def missing() -> None:
        raise TransferError(Fault.UNREACHABLE, "NCCL cannot be loaded")

    opened: list[str] = []
    monkeypatch.setattr(opening, "CudaIpcServing", lambda *_: SimpleNamespace(name="cuda_ipc", probe=b"", close=list))
    monkeypatch.setattr(opening, "NcclServing", lambda *_: opened.append("nccl"))
    monkeypatch.setattr(pynccl, "is_installed", lambda: True)
    monkeypatch.setattr(pynccl, "require", missing)
    memory = SimpleNamespace(is_cuda=True, device=torch.device("cuda", 0))
    region: Any = SimpleNamespace(memory=memory, file=None)
    with contextlib.closing(open_agent(region, listen("127.0.0.1", 0), "127.0.0.1")) as agent:
        assert [way.transport for way in agent.ways] == ["cuda_ipc", "tcp"]
    assert not opened
    assert "nccl is not served: unreachable: NCCL cannot be loaded" in caplog.text


def test_all_pulls_into_a_gpu_wait_for_the_same_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they stage is bounded together."""
    given: list[Turns] = []

    def pulling(*arguments: Any) -> Any:
        given.append(arguments[-1])
        return SimpleNamespace(name=f"way {len(given)}", close=list)

    monkeypatch.setattr(opening, "cuda_ipc_pulling", pulling)
    monkeypatch.setattr(opening, "NcclPulling", pulling)
    monkeypatch.setattr(pynccl, "is_installed", lambda: True)
    region: Any = SimpleNamespace(memory=SimpleNamespace(is_cuda=True))
    open_pulling_agent(region).close()
    assert len(given) == 2
    assert given[0] is given[1]
