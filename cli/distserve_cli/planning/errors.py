"""What the user has to change."""

from collections.abc import Iterator
from contextlib import contextmanager

import click


class BadInput(click.ClickException):
    """Input that cannot be planned with: one line that names what it is, its value and what would do."""

    exit_code = 2


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn the placement package's errors of value into `BadInput` about `what`."""
    try:
        yield
    except ValueError as error:
        raise BadInput(f"{what}: {error}") from error
