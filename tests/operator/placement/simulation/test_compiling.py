"""Compiling takes most of a minute, so it happens once for a source, wherever its copies lie."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import distserve_operator
from distserve_operator.placement.simulation.loading import load

PROGRAM = """
import distserve_operator
from distserve_operator.placement.simulation import colocated, disaggregated
from distserve_operator.placement.simulation.loading import load
load()
stats = [module.run.stats for module in (colocated, disaggregated)]
print(distserve_operator.__path__[0], *(sum(one.cache_misses.values()) for one in stats), sep="\\n")
"""


def test_another_copy_of_the_source_is_not_compiled_again(tmp_path: Path) -> None:
    load()
    copy = tmp_path / "distserve_operator"
    shutil.copytree(Path(distserve_operator.__path__[0]), copy, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-c", PROGRAM]
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == [str(copy), "0", "0"]
