"""What cannot fit is refused in numbers before anything is read."""

import os
from pathlib import Path

import pytest
import yaml

from distserve_worker.engine.blueprint import EngineConfig, EngineRole, blueprint_of
from distserve_worker.engine.loading.inventory import weight_bytes
from distserve_worker.engine.parallel import Grid
from distserve_worker.engine.work_memory import work_bytes
from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.memory_limit import memory_limit, require_fit
from distserve_worker.server.quantities import parse_bytes

SAMPLES = Path(__file__).parents[2] / "docs/samples"


def test_the_limit_is_the_least_that_is_told(tmp_path: Path) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    tight, none, absent = tmp_path / "tight", tmp_path / "none", tmp_path / "absent"
    tight.write_text("123456789\n")
    none.write_text("max\n")
    assert memory_limit((none, absent)) == machine
    assert memory_limit((absent, tight)) == 123456789


@pytest.mark.parametrize("grid", [Grid(), Grid(tp=2), Grid(tp=4, pp=2)], ids=str)
def test_weights_cache_and_processes_of_all_ranks_must_fit(wide_llama: Path, grid: Grid) -> None:
    blueprint = blueprint_of(EngineConfig("colocated", wide_llama, 64 << 20, grid=grid))
    weights = sum(weight_bytes(blueprint.model, blueprint.shard(rank), "FP32") for rank in range(grid.ranks))
    steps = sum(work_bytes(blueprint, rank) for rank in range(grid.ranks)) - (54 << 20)
    processes = ((350 + 150 * (grid.ranks - 1)) << 20) + max(0, steps)
    needed = weights + (64 << 20) + processes
    require_fit(blueprint, needed)
    words = (
        rf"ModelDoesNotFit: {grid.ranks} ranks need {weights} bytes for weights in FP32, {64 << 20} for the KV cache "
        rf"\(--kv-cache-memory\) and {processes} for libraries and to compute in, the pod has {needed - 1}: "
    )
    with pytest.raises(WorkerFailure, match=words):
        require_fit(blueprint, needed - 1)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("smollm2*.yaml")), ids=lambda path: path.stem)
def test_the_samples_fit_into_their_pods(smollm2_path: Path, path: Path) -> None:
    spec = yaml.safe_load(path.read_text())["spec"]
    device = parse_bytes(spec["cluster"]["memoryPerDevice"])
    roles = [role for role in spec["placement"].values() if isinstance(role, dict)]
    for tp in {role.get("tp", 1) for role in roles} | {1}:
        config = EngineConfig("colocated", smollm2_path, tp * device // 3, spec["model"]["dtype"], grid=Grid(tp))
        require_fit(blueprint_of(config), tp * device)


@pytest.mark.parametrize("role", ["prefill", "decode", "colocated"])
def test_what_requests_compute_at_once_counts(smollm2_path: Path, role: EngineRole) -> None:
    """Each has a number for all 49152 tokens, several times over."""
    many, few = (blueprint_of(EngineConfig(role, smollm2_path, 1 << 30, max_running=count)) for count in (256, 64))
    limit = 2200 * 10**6
    require_fit(few, limit)
    with pytest.raises(WorkerFailure, match="fewer requests at once"):
        require_fit(many, limit)


def test_a_pod_that_would_be_killed_under_load_is_refused(smollm2_path: Path) -> None:
    """Weights and a third for the cache alone would be within the limit."""
    limit = 1 << 30
    with pytest.raises(WorkerFailure, match=f"the pod has {limit}"):
        require_fit(blueprint_of(EngineConfig("prefill", smollm2_path, limit // 3)), limit)
