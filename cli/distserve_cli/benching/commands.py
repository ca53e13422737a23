"""`distserve bench placement`: measurements of the placement search."""

import json
from pathlib import Path
from typing import Any

import click

FOLDER = Path("build/bench")


@click.group()
def bench() -> None:
    """Measure, print a table and write the samples to build/bench/NAME.json."""


@bench.command()
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, show_default=True)
def placement(folder: Path) -> None:
    """CPU time of the search, and the devices that choosing shapes and counts together saves."""
    from distserve_cli.benching.placement import bench_savings, bench_speed

    speed, savings = bench_speed(), bench_savings()
    _print_speed(speed)
    _print_savings(savings)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "placement.json"
    target.write_text(json.dumps({"speed": speed, "savings": savings}, indent=2) + "\n")
    click.echo(f"written to {target}")


def _print_speed(speed: dict[str, Any]) -> None:
    click.echo("| search | CPU seconds | published code | ratio | plan |\n|---|---|---|---|---|")
    for row in speed["rows"]:
        reference = "" if row["ratio"] is None else f"{row['referenceCpuSeconds']:g}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:,.0f}"
        click.echo(f"| {row['case']} | {min(row['cpuSeconds']):.3f} | {reference} | {ratio} | {row['plan']} |")
    click.echo(f"\npeak memory {speed['peakMebibytes']} MiB\n")


def _print_savings(savings: dict[str, Any]) -> None:
    click.echo("| workload | joint | paper's rule | colocated |\n|---|---|---|---|")
    for row in savings["rows"]:
        cells = (_cell(row[name]) for name in ("joint", "paper", "colocated"))
        click.echo(f"| {row['case']} | {' | '.join(cells)} |")
    click.echo(f"\nthe joint rule saves {100 * savings['meanSaving']:.0f} % of the paper's devices on average\n")


def _cell(found: dict[str, Any]) -> str:
    if found["devices"] is None or not found["holds"]:
        return f"does not hold it ({found['plan']})" if found["plan"] else "none"
    return f"{found['devices']} ({found['plan']})"
