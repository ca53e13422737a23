"""The compiled simulation does what its source says, and the source stays inside its arrays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from distserve_testing import random_fleets


def test_compiled_code_and_plain_python_see_the_same() -> None:
    """In plain Python an index behind the end of an array is an error; compiled it would overwrite something."""
    support = str(Path(random_fleets.__file__).parents[1])
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": support}
    command = [sys.executable, "-m", "distserve_testing.random_fleets"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    plain, compiled = json.loads(done.stdout), random_fleets.outcomes()
    assert sum(fleet[0] > 0 for fleet in compiled) >= 3  # some put requests back
    for one, other in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)
