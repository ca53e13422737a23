"""Types of command-line flags: each reads a text and tells argparse, and so the user, what is wrong with it."""

import argparse
from collections.abc import Callable
from typing import TypeVar

N = TypeVar("N", int, float)
T = TypeVar("T")


def told(parse: Callable[[str], T], text: str) -> T:
    """What `parse` makes of `text`; its ValueError becomes the one error type whose text argparse shows."""
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def integer(low: int, high: int) -> Callable[[str], int]:
    """The type of a flag that takes a whole number from `low` to `high`."""
    return lambda text: told(lambda value: _in_range(int(value), low, high), text)


def number(low: float, high: float) -> Callable[[str], float]:
    """The type of a flag that takes a number from `low` to `high`; NaN is none."""
    return lambda text: told(lambda value: _in_range(float(value), low, high), text)


seconds = number(0.1, 86_400.0)
port = integer(0, 65535)


def _in_range(value: N, low: N, high: N) -> N:
    if not low <= value <= high:
        raise ValueError(f"{value} is not in {low} to {high}")
    return value
