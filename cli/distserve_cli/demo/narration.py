"""Tells a person what is being done, how long it took, and where to look when it fails."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import click


class StepFailed(click.ClickException):
    """A step that did not work; the message says why, `look` where to read more."""

    def __init__(self, message: str, look: str) -> None:
        super().__init__(f"{message}\n  look at: {look}")


def say(text: str) -> None:
    """One indented line of progress."""
    click.echo(f"  {text}")


@contextmanager
def step(title: str) -> Iterator[None]:
    """Announce a step and, when it is over, its seconds."""
    click.secho(f"▸ {title}", bold=True)
    start = time.monotonic()
    yield
    say(f"done in {time.monotonic() - start:.1f} s")
