"""Recorded requests: a trace with its own arrivals, or lengths alone."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.lengths import MOST_TOKENS, Empirical
from distserve_operator.placement.workload.path import Path
from distserve_operator.placement.workload.table import rows, shown

LENGTH_COLUMNS: Final = ("prompt_tokens", "output_tokens")
TRACE_COLUMNS: Final = ("arrival_seconds", *LENGTH_COLUMNS)


@dataclass(frozen=True, slots=True)
class Trace(Path):
    """Requests of a file, each with the number of its line."""

    lines: tuple[int, ...]


def parse_trace(lines: Iterable[str], name: str) -> Trace:
    """Requests as they came; arrivals are seconds after the first one, at `rate` 1 in the time of the trace.

    Raises:
        WorkloadError: with the line's number, the value and what is expected.
    """
    arrivals: list[float] = []
    pairs: list[tuple[int, int]] = []
    numbers: list[int] = []
    for line, (arrival, prompt, output) in rows(lines, name, TRACE_COLUMNS):
        where = f"line {line} of {name}"
        arrivals.append(_seconds(arrival, where))
        if len(arrivals) > 1 and arrivals[-1] < arrivals[-2]:
            raise WorkloadError(
                f"{where}: arrival_seconds is {arrivals[-1]:g}, before the {arrivals[-2]:g} of the line above: "
                "sort the trace by arrival"
            )
        pairs.append(_pair(prompt, output, where))
        numbers.append(line)
    if not pairs:
        raise WorkloadError(f"{name} has no requests: expected a line {','.join(TRACE_COLUMNS)} for each")
    table = np.array(pairs, np.int64)
    return Trace(np.array(arrivals) - arrivals[0], table[:, 0].copy(), table[:, 1].copy(), tuple(numbers))


def parse_lengths(lines: Iterable[str], name: str) -> Empirical:
    """Pairs of prompt and output tokens in the order of the file. Raises WorkloadError as `parse_trace`."""
    pairs: list[tuple[int, int]] = []
    numbers: list[int] = []
    for line, (prompt, output) in rows(lines, name, LENGTH_COLUMNS):
        pairs.append(_pair(prompt, output, f"line {line} of {name}"))
        numbers.append(line)
    if not pairs:
        raise WorkloadError(f"{name} has no requests: expected a line {','.join(LENGTH_COLUMNS)} for each")
    return Empirical(tuple(pairs), tuple(numbers))


def lengths_of(trace: Trace) -> Empirical:
    """The lengths of a trace without their arrivals."""
    return Empirical(tuple(zip(trace.prompts.tolist(), trace.outputs.tolist(), strict=True)), trace.lines)


def _pair(prompt: str, output: str, where: str) -> tuple[int, int]:
    return _tokens(prompt, f"{where}: prompt_tokens"), _tokens(output, f"{where}: output_tokens")


def _tokens(text: str, what: str) -> int:
    plain = text.isascii() and text.isdigit() and len(text) < 20  # int() refuses endless digits
    if not plain or not 1 <= int(text) <= MOST_TOKENS:
        raise WorkloadError(f"{what} is {shown(text)}: expected a whole number from 1 to {MOST_TOKENS:,}")
    return int(text)


def _seconds(text: str, where: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise WorkloadError(f"{where}: arrival_seconds is {shown(text)}: expected seconds, 0 or more")
    return seconds
