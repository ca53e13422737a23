"""How options with numbers are read: one, a whole one, or several with commas between them."""

from typing import Final

import click

from distserve_cli.planning.quantities import PARALLELISM, RATE, Quantity


class Number(click.ParamType[float]):
    """A number with a unit."""

    name = "number"

    def __init__(self, quantity: Quantity) -> None:
        self.quantity = quantity

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Check the number."""
        try:
            return self.quantity.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Whole(click.ParamType[int]):
    """A whole number with a unit."""

    name = "integer"

    def __init__(self, quantity: Quantity) -> None:
        self.quantity = quantity

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Check the number."""
        try:
            return self.quantity.read_whole(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Numbers(click.ParamType[tuple[float, ...]]):
    """From `least` to `most` numbers, which `form` describes."""

    name = "numbers"

    def __init__(self, quantity: Quantity, least: int, most: int, form: str) -> None:
        self.quantity = quantity
        self.least = least
        self.most = most
        self.form = form

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Check each number, and how many there are."""
        parts = str(value).split(",")
        if not self.least <= len(parts) <= self.most:
            self.fail(f"{value!r} has {len(parts)} numbers: give {self.form}", param, ctx)
        try:
            return tuple(self.quantity.read(part) for part in parts)
        except ValueError as error:
            self.fail(f"{error}, in {self.form}", param, ctx)


POOL: Final = Numbers(PARALLELISM, 3, 3, "tp,pp,replicas such as 2,1,1")
RATES: Final = Numbers(RATE, 1, 1000, "requests per second such as 1,2,3")
