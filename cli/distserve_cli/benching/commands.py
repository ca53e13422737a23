"""`distserve bench`: measurements of the placement search, of the engine's steps and of how KV moves."""

import json
import os
import statistics
from pathlib import Path
from typing import Any

import click

FOLDER = Path("build/bench")
_FOLDER_OPTION = click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, show_default=True
)
_MODEL_OPTION = click.option(
    "--model", type=click.Path(exists=True, path_type=Path), help="default: SmolLM2 out of the cache"
)


@click.group()
def bench() -> None:
    """Measure, print a table and write the samples to build/bench/NAME.json."""


@bench.command()
@_FOLDER_OPTION
def placement(folder: Path) -> None:
    """CPU time of the search, and the devices that choosing shapes and counts together saves."""
    from distserve_cli.benching.placement import bench_savings, bench_speed

    speed, savings = bench_speed(), bench_savings()
    _print_speed(speed)
    _print_savings(savings)
    _write(folder / "placement.json", {"speed": speed, "savings": savings})


@bench.command()
@_FOLDER_OPTION
@_MODEL_OPTION
def transfer(folder: Path, model: Path | None) -> None:
    """Speed of the transports between two processes, and the share of a request that its pull takes."""
    from distserve_cli.benching.transfer import bench_share, bench_speeds
    from distserve_devcluster.weights import fetch_weights

    speeds, share = bench_speeds(), bench_share(model or fetch_weights(click.echo))
    _print_transfers(speeds)
    _print_share(share)
    _write(folder / "transfer.json", {"speeds": speeds, "share": share})


@bench.command()
@_FOLDER_OPTION
@_MODEL_OPTION
@click.option("--threads", type=click.IntRange(1), default=len(os.sched_getaffinity(0)), show_default="all CPUs")
def engine(folder: Path, model: Path | None, threads: int) -> None:
    """Prefill and decode steps against transformers in the same process."""
    from distserve_cli.benching.engine import bench_steps
    from distserve_devcluster.weights import fetch_weights

    steps = bench_steps(model or fetch_weights(click.echo), threads)
    _print_steps(steps)
    _write(folder / "engine.json", steps)


def _write(target: Path, content: dict[str, Any]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(content, indent=2) + "\n")
    click.echo(f"written to {target}")


def _print_steps(steps: dict[str, Any]) -> None:
    click.echo("| step | ms | transformers, ms | times as fast |\n|---|---|---|---|")
    for row in steps["rows"]:
        ours, theirs = (1000 * statistics.median(row[side]) for side in ("engine", "transformers"))
        what = f"prompt of {row['size']} tokens" if row["phase"] == "prefill" else f"decode batch of {row['size']}"
        click.echo(f"| {what} | {ours:.0f} | {theirs:.0f} | {row['ratio']:.2f} |")


def _print_transfers(speeds: dict[str, Any]) -> None:
    click.echo("| transport | MiB | GB/s | copy in one process, GB/s | ratio |\n|---|---|---|---|---|")
    for row in speeds["rows"]:
        pull, copy = row["pullBytesPerSecond"] / 1e9, row["copyBytesPerSecond"] / 1e9
        size = row["nbytes"] // 2**20
        click.echo(f"| {row['transport']} | {size} | {pull:.2f} | {copy:.2f} | {row['ratio']:.2f} |")


def _print_share(share: dict[str, Any]) -> None:
    row = share["rows"][0]
    click.echo(
        f"\na pull over {row['transport']} takes {100 * share['share']:.2f} % of a request's time "
        f"({row['kv_bytes'] / 1e6:.0f} MB, median of {len(share['rows'])} requests)\n"
    )


def _print_speed(speed: dict[str, Any]) -> None:
    click.echo("| search | CPU seconds | published code | ratio | plan |\n|---|---|---|---|---|")
    for row in speed["rows"]:
        reference = "" if row["ratio"] is None else f"{row['referenceCpuSeconds']:g}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:,.0f}"
        click.echo(f"| {row['case']} | {min(row['cpuSeconds']):.3f} | {reference} | {ratio} | {_placed(row)} |")
    click.echo(f"\npeak memory {speed['peakMebibytes']} MiB\n")


def _placed(row: dict[str, Any]) -> str:
    return str(row["plan"]) if row["feasible"] else f"{row['plan']}, not feasible"


def _print_savings(savings: dict[str, Any]) -> None:
    click.echo("| workload | joint | paper's rule | colocated |\n|---|---|---|---|")
    for row in savings["rows"]:
        cells = (_cell(row[name]) for name in ("joint", "paper", "colocated"))
        click.echo(f"| {row['case']} | {' | '.join(cells)} |")
    if savings["meanSaving"] is not None:
        share = f"{100 * savings['meanSaving']:.0f} % of the paper's devices"
        click.echo(f"\nwhere both hold the rate, the joint rule saves {share} on average\n")


def _cell(found: dict[str, Any]) -> str:
    if found["devices"] is None or not found["holds"]:
        return f"does not hold it ({found['plan']})" if found["plan"] else "none"
    return f"{found['devices']} ({found['plan']})"
