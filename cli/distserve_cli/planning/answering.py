"""Runs the search and simulations while a person watches, and measures what the search costs."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

from distserve_cli.planning.answer import Answer
from distserve_operator.placement.question import Question
from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.simulation.loading import load

Item = TypeVar("Item")


def answer(question: Question) -> Answer:
    """Search the placement; loading the compiled simulation, which the first run on a machine compiles, is apart."""
    with _progress() as progress:
        task = progress.add_task("loading the simulator (the first time it is compiled)", total=None)
        load()
        progress.update(task, description=f"placing {question.model.name}")
        start, cpu_start = time.perf_counter(), time.process_time()
        found = plan(question)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    return Answer(found, 1000 * seconds, 1000 * cpu_seconds)


def watched(items: Sequence[Item], title: str) -> Iterator[Item]:
    """The same items, counted in a progress bar."""
    with _progress() as progress:
        yield from progress.track(items, description=title)


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error, for eyes only."""
    watching = sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=not watching) as progress:
        yield progress
