"""`make test-gpu` leaves nothing out without a word: without the bindings of NCCL it ends before the first test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITH_A_GPU = "from types import SimpleNamespace\ncuda = SimpleNamespace(is_available=lambda: True)\n"
WITHOUT_A_GPU = WITH_A_GPU.replace("True", "False")
INSTALLED = ""
MISSING = "raise ModuleNotFoundError(\"No module named 'nccl'\")\n"
EXTRAS = "worker,test,gpu"


@pytest.mark.parametrize(
    ("torch", "nccl", "reason"),
    [
        (
            WITH_A_GPU,
            MISSING,
            f"No module named 'nccl': the extras worker, test and gpu are needed (scripts/install python3 {EXTRAS})",
        ),
        (WITHOUT_A_GPU, INSTALLED, "no GPU is visible to torch here"),
    ],
    ids=["bindings", "gpu"],
)
def test_what_is_missing_is_named_and_an_error(torch: str, nccl: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "nccl").mkdir()
    for file, text in {"torch.py": torch, "nccl/__init__.py": nccl, "nccl/core.py": ""}.items():
        (tmp_path / file).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "DISTSERVE_BIN": str(Path(sys.executable).parent)}
    command = ROOT / "scripts/test-gpu"
    ran = subprocess.run([command], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    assert ran.stderr == f"test-gpu: {reason}\n"
    assert not ran.stdout


def test_the_target_installs_what_its_tests_need() -> None:
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", "test-gpu"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60)
    lines = ran.stdout.splitlines()
    (install,) = (place for place, line in enumerate(lines) if line.endswith(f" {EXTRAS}"))
    assert lines[install].startswith("scripts/install ")
    assert lines[-1] == "scripts/test-gpu"
