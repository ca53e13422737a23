"""What carries the exchanges of ranks does not depend on the version of torch."""

from datetime import timedelta

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d

from distserve_worker.engine.execution.backends import backend_of, options_of

ONE = timedelta(seconds=7)


def test_cpus_use_gloo() -> None:
    assert backend_of("cpu") == "gloo"
    assert options_of("cpu", ONE) is None


@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs a torch that is built with NCCL")
def test_gpus_use_the_nccl_that_has_a_communicator_for_each_pair() -> None:
    """What a rank sends must never wait for what it expects."""
    name = backend_of("cuda")
    assert distributed_c10d.BackendConfig(name).get_device_backend_map()["cuda"] == name
    made_by = dist.Backend._plugins[name.upper()].creator_fn
    assert made_by is distributed_c10d._create_nccl_process_group


def test_where_there_is_one_nccl_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_backend_available", lambda name: name in {"nccl", "gloo"})
    assert backend_of("cuda") == "nccl"


@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs a torch that is built with NCCL")
def test_exchanges_between_gpus_go_before_all_else_and_every_group_has_options_of_its_own() -> None:
    first, second = options_of("cuda", ONE), options_of("cuda", ONE)
    assert first is not None
    assert first is not second
    assert first.is_high_priority_stream
    assert first._timeout == ONE
