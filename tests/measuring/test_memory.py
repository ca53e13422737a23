"""A model that does not fit is found before it is loaded, and what is free is shared with the KV cache."""

from dataclasses import replace
from pathlib import Path

import pytest

from distserve_worker.engine.blueprint import KV_DTYPE
from distserve_worker.exiting import WorkerFailure
from distserve_worker.measuring.arguments import DTYPES
from distserve_worker.measuring.inspecting import free_memory, processor
from distserve_worker.measuring.memory import MOST_KV_BYTES, kv_bytes
from distserve_worker.weights.families.rotary import RotaryConfig
from distserve_worker.weights.reading import read_config

GIB = 1 << 30


@pytest.fixture
def config(tiny: Path) -> RotaryConfig:
    config = read_config(tiny)
    assert isinstance(config, RotaryConfig)
    return config


def test_the_formats_are_those_of_the_engine() -> None:
    """The command line names them, and must not import the engine for that."""
    assert set(DTYPES) == set(KV_DTYPE)


def test_a_model_that_is_too_large_is_refused_with_the_numbers_and_with_the_formats_that_fit(
    config: RotaryConfig,
) -> None:
    large = replace(
        config,
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        ffn=14336,
        vocab=128256,
        windows=(None,) * 32,
    )
    large = replace(large, windows=(None,) * large.layers)
    numbers = r"ModelDoesNotFit: its 32\.1 GB of weights in FP32 take 37\.5 GB to run"
    with pytest.raises(WorkerFailure, match=rf"{numbers}.*: give --dtype BF16 or --dtype FP16 or --dtype INT8 or a"):
        kv_bytes(large, "FP32", 20 * GIB)
    with pytest.raises(WorkerFailure, match="give --dtype INT8 or a smaller model"):
        kv_bytes(large, "BF16", 12 * GIB)
    assert 0 < kv_bytes(large, "BF16", 20 * GIB) < 2 * GIB
    assert kv_bytes(large, "INT8", 12 * GIB) > 0


def test_a_small_model_leaves_memory_to_others(config: RotaryConfig) -> None:
    assert kv_bytes(config, "FP32", 64 * GIB) == MOST_KV_BYTES
    assert kv_bytes(config, "FP32", 2 * GIB) < GIB


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


MACHINE = {
    "proc/meminfo": "MemTotal: 8000 kB\nMemAvailable:    5000 kB\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: A CPU\n",
}
V2 = "sys/fs/cgroup/memory"
V1 = "sys/fs/cgroup/memory/memory"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 5000 * 1024),
        ({f"{V2}.max": "max\n", f"{V2}.current": "9", f"{V2}.stat": "inactive_file 0\n"}, 5000 * 1024),
        ({f"{V2}.max": "3000\n", f"{V2}.current": "1000\n", f"{V2}.stat": "anon 5\ninactive_file 100\n"}, 2100),
        ({f"{V2}.max": "3000\n", f"{V2}.current": "4000\n", f"{V2}.stat": "inactive_file 100\n"}, 0),
        (
            {
                f"{V1}.limit_in_bytes": "3000\n",
                f"{V1}.usage_in_bytes": "1000\n",
                f"{V1}.stat": "inactive_file 7\ntotal_inactive_file 200\n",
            },
            2200,
        ),
    ],
)
def test_free_is_what_machine_and_container_leave(tmp_path: Path, files: dict[str, str], free: int) -> None:
    write(tmp_path, {**MACHINE, **files})
    assert free_memory(tmp_path) == free
    assert processor(tmp_path) == "A CPU"


def test_this_machine_can_be_looked_at() -> None:
    assert free_memory() > 0
    assert processor()
