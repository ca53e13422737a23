"""Runs the transfer benchmarks: speeds of the transports, and the share of a request that its pull takes."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from distserve_cli.benching.machine import machine_with
from distserve_cli.benching.serving import serving

Row = dict[str, Any]

PROMPT_TOKENS: Final = 512
OUTPUT_TOKENS: Final = 64
_REQUESTS: Final = 8
_SPEEDS_SECONDS: Final = 600.0
_FIRST_TOKEN_ID: Final = 1000  # ordinary words of any vocabulary


def bench_speeds() -> Row:
    """Pulls between two processes over each transport that needs no GPU, and copies of the same size in one process.

    Raises `ClickException` when the measuring process fails.
    """
    command = [sys.executable, "-m", "distserve_worker.benching.transfers"]
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_SPEEDS_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise click.ClickException(f"measuring transfers: {error}") from error
    return {"rows": json.loads(done.stdout), **machine_with("numpy", "torch")}


def bench_share(model: Path) -> Row:
    """Stages of requests of `PROMPT_TOKENS` and `OUTPUT_TOKENS`, one after another, and the pull's share of each."""
    with serving(model) as served:
        served.complete(_prompt(_REQUESTS), OUTPUT_TOKENS)  # the two workers meet with the first request
        rows = []
        for number in range(_REQUESTS):
            started = time.perf_counter()
            report = served.complete(_prompt(number), OUTPUT_TOKENS)
            seconds = time.perf_counter() - started
            rows.append(report | {"seconds": seconds, "share": report["stages"]["transfer"] / seconds})
    share = statistics.median(row["share"] for row in rows)
    return {"rows": rows, "share": share, **machine_with("torch")}


def _prompt(number: int) -> list[int]:
    """Different from its first token on, so that nothing of it is in memory already."""
    return [_FIRST_TOKEN_ID + number * PROMPT_TOKENS + place for place in range(PROMPT_TOKENS)]
