"""Numbers that make sense, each with its unit, for options and for fields of a resource alike."""

from dataclasses import dataclass
from typing import Final

from distserve_operator.placement.rates import LOWEST


@dataclass(frozen=True, slots=True)
class Quantity:
    """Numbers from `least` to `most`; `least` itself is none of them when `above`."""

    what: str
    least: float
    most: float
    above: bool = False
    whole: bool = False

    def read(self, value: object) -> float:
        """The number that `value` is or says. Raises ValueError with value and range."""
        number = _number(value)
        low = number is not None and (number > self.least or (number == self.least and not self.above))
        if number is None or not low or not number <= self.most or (self.whole and not number.is_integer()):
            raise ValueError(f"{value!r} is no {self.what}: give {self}")
        return number

    def read_whole(self, value: object) -> int:
        """As `read`, of whole numbers."""
        return int(self.read(value))

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        least = f"above {self.least:g}" if self.above else f"of at least {self.least:,.10g}"
        return f"{kind} {least}, at most {self.most:,.0f}"


MILLISECONDS: Final = Quantity("number of milliseconds", 0, 1e9, above=True)
PERCENT: Final = Quantity("percentage", 0, 100, above=True)
RATE: Final = Quantity("rate in requests per second", LOWEST, 1e6)
GIGABITS: Final = Quantity("number of gigabits per second", 0, 1e6, above=True)
NODES: Final = Quantity("number of nodes", 1, 100_000, whole=True)
DEVICES: Final = Quantity("number of devices", 1, 100_000, whole=True)
NODE_DEVICES: Final = Quantity("number of devices in a node", 1, 1024, whole=True)
TOKENS: Final = Quantity("number of tokens", 2, 10_000_000, whole=True)
REQUESTS: Final = Quantity("number of requests", 10, 40_000, whole=True)
COUNT: Final = Quantity("count", 0, 1000, whole=True)
SEED: Final = Quantity("seed", 0, 2**32 - 1, whole=True)
PARALLELISM: Final = Quantity("tp, pp or replicas", 1, 1000, whole=True)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
