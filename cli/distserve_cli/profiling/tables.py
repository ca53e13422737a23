"""A profile for a person's eyes; everything that is shown is taken from the plain data of `rendering`."""

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from distserve_cli.profiling.rendering import Json
from distserve_operator.placement.latency.saturation import SHARE

COLUMNS = ("requests", "tokens", "step", "measured", "fitted", "error", "noise", "repetitions")
MIXED_COLUMNS = ("requests", "before", "tokens", "alone", "step", "fitted", "error", "noise", "repetitions")


def print_profile(profile: Json, *, on_error_output: bool) -> None:
    """All kinds of steps one by one, and then what they come to."""
    stream = sys.stderr if on_error_output else sys.stdout
    console = Console(file=stream, highlight=False, soft_wrap=True, width=None if stream.isatty() else 120)
    threads = f"{profile['threads']} thread{'s' if profile['threads'] > 1 else ''}"
    title = f"{profile['model']} in {profile['weightType']} on {profile['device']} ({profile['processor']}, {threads})"
    console.print(title, style="bold", markup=False)
    for phase in ("prefill", "decode"):
        console.print()
        console.print(_steps(phase, profile[phase]))
    if profile["mixed"]["steps"]:
        console.print()
        console.print(_mixed(profile["mixed"]))
    console.print()
    console.print(_facts(profile))


def _steps(phase: str, steps: Json) -> Table:
    table = Table(box=None)
    titles = ("PROMPTS" if phase == "prefill" else "REQUESTS", "TOKENS" if phase == "prefill" else "CONTEXT")
    table.add_column(phase.upper())
    for title in (*titles, "STEP ms", "KERNELS ms", "FITTED ms", "ERROR %", "NOISE %", "RUNS"):
        table.add_column(title, justify="right")
    for step in steps["steps"]:
        table.add_row("", *(_cell(name, step[name]) for name in COLUMNS))
    return table


def _mixed(steps: Json) -> Table:
    table = Table(box=None)
    table.add_column("MIXED")
    for title in ("REQUESTS", "BEFORE", "CHUNK", "ALONE ms", "STEP ms", "FITTED ms", "ERROR %", "NOISE %", "RUNS"):
        table.add_column(title, justify="right")
    for step in steps["steps"]:
        table.add_row("", *(_cell(name, step[name]) for name in MIXED_COLUMNS))
    return table


def _facts(profile: Json) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for phase in ("prefill", "decode"):
        errors = f"mean error {profile[phase]['meanError']:.1f} %, worst {profile[phase]['worstError']:.1f} %"
        longest = max(step["tokens"] for step in profile[phase]["steps"])
        table.add_row(phase, f"{errors}; measured up to {longest} tokens, beyond is extrapolated")
    host = profile["host"]
    table.add_row(
        "host",
        f"{host['perBatch']:.3g} ms per prefill batch; {host['perStep']:.3g} ms per decode step and "
        f"{host['perStepRequest']:.3g} ms for each of its requests, at temperature {profile['temperature']:g} "
        "(steps of the engine with a model that computes nothing)",
    )
    table.add_row("overlap", _overlap(profile))
    table.add_row(
        "L_m",
        f"{profile['saturatingTokens']} tokens: a prompt as long is prefilled at "
        f"{profile['saturatingTokensPerSecond']:.4g} tokens/s, {100 * SHARE:.0f} % of the best",
    )
    table.add_row(
        "tp",
        "1: measured on one device with the whole model, so plans with this profile have tensor parallelism 1 only",
    )
    for problem in profile["problems"]:
        table.add_row("poor fit", Text(problem))
    return table


def _overlap(profile: Json) -> str:
    share = profile["chunkOverlap"]
    if share is None:
        return "of chunks with decode: not measured, plans take 0; give more --seconds"
    errors = f"mean error {profile['mixed']['meanError']:.1f} %, worst {profile['mixed']['worstError']:.1f} %"
    return f"{share:.2f} of a chunk's own time hides behind the decode step it rides on; {errors}"


def _cell(name: str, value: float) -> str:
    if name in ("error", "noise"):
        return f"{value:+.1f}" if name == "error" else f"{value:.1f}"
    return str(value) if isinstance(value, int) else f"{value:.4g}"
