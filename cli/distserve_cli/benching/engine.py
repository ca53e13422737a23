"""Runs the engine's benchmark: its steps against those of transformers on the same weights."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import click

from distserve_cli.benching.machine import machine_with

_SECONDS: Final = 1800.0


def bench_steps(model: Path, threads: int) -> dict[str, Any]:
    """Prefill and decode steps of both. Raises `ClickException` when the measuring process fails."""
    command = [sys.executable, "-m", "distserve_worker.benching.engines", str(model), f"--threads={threads}"]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_SECONDS, env=environment)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise click.ClickException(f"measuring steps: {error}; transformers comes with the extra `test`") from error
    return {"threads": threads, "rows": json.loads(done.stdout), **machine_with("torch", "transformers")}
