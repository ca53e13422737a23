"""Reads recorded requests from files and from what is shipped."""

import pathlib
from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import TypeVar

from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.lengths import Empirical
from distserve_operator.placement.workload.trace import Trace, parse_lengths, parse_trace

Parsed = TypeVar("Parsed")


def read_trace(path: pathlib.Path) -> Trace:
    """A CSV file arrival_seconds,prompt_tokens,output_tokens. Raises WorkloadError."""
    return _read(path, parse_trace)


def read_lengths(path: pathlib.Path) -> Empirical:
    """A CSV file prompt_tokens,output_tokens. Raises WorkloadError."""
    return _read(path, parse_lengths)


def sharegpt_lengths() -> Empirical:
    """1600 conversations of ShareGPT, as the paper's chatbot workload (means 759 and 186 tokens)."""
    text = files("distserve_operator.placement.workload").joinpath("data/sharegpt_lengths.csv").read_text("utf-8")
    return parse_lengths(text.splitlines(), "sharegpt")


def _read(path: pathlib.Path, parse: Callable[[Iterable[str], str], Parsed]) -> Parsed:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return parse(lines, path.name)
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror}") from error
