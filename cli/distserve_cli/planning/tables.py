"""Answers for a person's eyes; everything that is shown is taken from the plain data of `rendering`."""

import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from distserve_cli.planning.rendering import LATENCIES, PERCENTILES, Json


def print_plan(plan: Json, targets: dict[str, float | None]) -> None:
    """A plan: first what it is, then what it does, then why. `targets` are milliseconds by latency."""
    console = _console()
    console.print(headline(plan), style="bold" if plan["feasible"] else "bold red", markup=False)
    for table in (_roles(plan), _latencies(plan, targets), _facts(plan), _others(plan)):
        if table.row_count:
            console.print()
            console.print(table)


def print_served(title: str, served: Sequence[Json]) -> None:
    """A placement at several rates."""
    names = [
        f"{latency.upper() if latency != 'gap' else 'GAP'} {each}" for latency in LATENCIES for each in PERCENTILES
    ]
    table = Table("RATE", "ATTAINMENT %", *names, box=None)
    for one in served:
        figures = [figure for latency in LATENCIES for figure in _all_percentiles(one[latency])]
        table.add_row(_figure(one["rate"]), _figure(one["attainment"]), *figures)
    console = _console()
    console.print(title, style="bold", markup=False)
    console.print(table)
    console.print("rates in requests per second, latencies in milliseconds")
    if beyond := [_figure(one["rate"]) for one in served if one["steady"] is False]:
        console.print(f"not steady at {', '.join(beyond)}: the longer the run, the fewer requests meet the targets")


def headline(plan: Json) -> str:
    """A plan in one line; of one that is not feasible it says so and what binds."""
    if plan["shape"] is None:
        return f"Not feasible. {plan['binding']}"
    placed = (
        f"{plan['shape']}: {plan['devices']} devices, {_figure(plan['goodput'])} requests/s "
        f"({_figure(plan['goodputPerDevice'])} per device), {_figure(plan['attainment'])} % meet the targets "
        f"at {_figure(plan['rate'])} requests/s"
    )
    return placed if plan["feasible"] else f"Not feasible. {plan['binding']}. The best that was found: {placed}"


def _console() -> Console:
    """As wide as the terminal; where there is none, wide enough that rows stay lines."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)


def _roles(plan: Json) -> Table:
    table = Table("ROLE", "INSTANCES", "TP", "PP", "DEVICES", "CHUNK", "WEIGHTS/DEVICE", "KV/DEVICE", box=None)
    for role in ("prefill", "decode", "colocated"):
        pool = plan[role]
        if pool is not None:
            memory = (plan["memoryPerDevice"].get(f"{role}{part}") for part in ("Weights", "Kv"))
            counts = (pool["replicas"], pool["tp"], pool["pp"], pool["replicas"] * pool["tp"] * pool["pp"])
            chunk = str(pool.get("chunkTokens") or "-")
            table.add_row(role, *map(str, counts), chunk, *map(_bytes, memory))
    return table


def _latencies(plan: Json, targets: dict[str, float | None]) -> Table:
    table = Table("MILLISECONDS", "P50", "P90", "P99", "TARGET", box=None)
    for latency in LATENCIES:
        if plan[latency] is not None:
            table.add_row(latency.upper(), *_all_percentiles(plan[latency]), _figure(targets[latency]))
    return table


def _facts(plan: Json) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in _sentences(plan):
        table.add_row(name, Text(text))
    return table


def _sentences(plan: Json) -> Iterator[tuple[str, str]]:
    yield "binding", plan["binding"]
    if plan["goodputInterval"] is not None:
        yield "goodput", " to ".join(map(_figure, plan["goodputInterval"])) + " requests/s (95 %)"
    if plan["segments"] is not None:
        yield "segments", f"{plan['segments']}; prefill and decode stages of each share a node"
    if plan["kv"] is not None:
        moved = plan["kv"]
        size, duration = _bytes(moved["bytes"]), _latency(moved["milliseconds"])
        yield "KV", f"{size} a request, {duration} ms over the {moved['link']} link"
    yield from (("why", reason) for reason in plan["reasons"])
    if plan["runnerUp"] is not None:
        yield "runner-up", f"{plan['runnerUp']['shape']}: {plan['runnerUp']['lost']}"
    if plan["alternatives"]["flipOverlap"] is not None:
        overlap = plan["alternatives"]["flipOverlap"]
        yield "flips", f"colocation wins above a chunk overlap of {overlap:g} (0: a chunk costs its own time, 1: none)"
    counted = plan["candidates"]
    candidates = f"{counted['evaluated']} candidates simulated, {counted['pruned']} pruned"
    yield "search", f"{candidates}, {counted['simulations']} simulations, {plan['searchMilliseconds']:.0f} ms"
    yield "latencies", plan["latencySource"]


def _others(plan: Json) -> Table:
    table = Table("CANDIDATE", "KV", "DEVICES", "GOODPUT", "PER DEVICE", "INTERVAL", box=None)
    alternatives = plan["alternatives"]
    for one in sorted(alternatives["top"], key=lambda one: -(one["goodputPerDevice"] or 0)):
        interval = " to ".join(map(_figure, one["goodputInterval"]))
        goodputs = map(_figure, (one["goodput"], one["goodputPerDevice"]))
        table.add_row(one["shape"], _way(one), str(one["devices"]), *goodputs, interval)
    return table


def _way(one: Json) -> str:
    """Where the KV travels."""
    if one["colocated"] is not None:
        return "stays"
    return "any node" if one["segments"] is None else "in nodes"


def _all_percentiles(latency: Json | None) -> list[str]:
    """As `PERCENTILES`; dashes where no request has such a time."""
    return ["-"] * len(PERCENTILES) if latency is None else [_latency(latency[each]) for each in PERCENTILES]


def _latency(milliseconds: float | None) -> str:
    return "never" if milliseconds is None else _figure(milliseconds)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _bytes(size: float | None) -> str:
    if size is None:
        return "-"
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} bytes"
