"""What cannot fit is refused in numbers before anything is read."""

import os
from pathlib import Path

import pytest

from distserve_worker.engine.blueprint import EngineConfig, blueprint_of
from distserve_worker.engine.parallel import Grid
from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.memory_limit import memory_limit, require_fit


def test_the_limit_is_the_least_that_is_told(tmp_path: Path) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    tight, none, absent = tmp_path / "tight", tmp_path / "none", tmp_path / "absent"
    tight.write_text("123456789\n")
    none.write_text("max\n")
    assert memory_limit((none, absent)) == machine
    assert memory_limit((absent, tight)) == 123456789


@pytest.mark.parametrize("grid", [Grid(), Grid(tp=2), Grid(tp=4, pp=2)], ids=str)
def test_weights_and_cache_of_all_ranks_must_fit(wide_llama: Path, grid: Grid) -> None:
    blueprint = blueprint_of(EngineConfig("colocated", wide_llama, 64 << 20, grid=grid))
    require_fit(blueprint, 1 << 30)
    with pytest.raises(WorkerFailure, match=rf"ModelDoesNotFit: {grid.ranks} ranks need \d+ bytes for weights in FP32"):
        require_fit(blueprint, 65 << 20)
