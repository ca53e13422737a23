"""When requests come: gaps between arrivals with a mean of one second."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.path import Floats

LEAST_VARIATION: Final = 0.01
MOST_VARIATION: Final = 100.0


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent users."""

    def gaps(self, stream: np.random.Generator, count: int) -> Floats:
        """Seconds before each of `count` arrivals."""
        return stream.standard_exponential(count)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Bursts (`cv` above 1) or order (below 1): gamma-distributed gaps with the coefficient of variation `cv`."""

    cv: float

    def __post_init__(self) -> None:
        if not LEAST_VARIATION <= self.cv <= MOST_VARIATION:
            raise WorkloadError(
                f"the variation of arrivals is {self.cv}: expected {LEAST_VARIATION:g} to {MOST_VARIATION:g}"
            )

    def gaps(self, stream: np.random.Generator, count: int) -> Floats:
        """Seconds before each of `count` arrivals."""
        return stream.standard_gamma(1 / self.cv**2, count) * self.cv**2


@dataclass(frozen=True, slots=True)
class Regular:
    """Fixed spacing."""

    def gaps(self, stream: np.random.Generator, count: int) -> Floats:  # noqa: ARG002
        """Seconds before each of `count` arrivals."""
        return np.ones(count)


Arrivals = Poisson | Gamma | Regular
