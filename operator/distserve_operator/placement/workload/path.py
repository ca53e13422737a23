"""One sample path of a workload: the same requests in the same order, at any rate."""

from dataclasses import dataclass

import numpy as np

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Path:
    """Requests in order of arrival: seconds at one request per second; tokens of prompt and output, each at least 1."""

    arrivals: Floats
    prompts: Numbers
    outputs: Numbers

    def at(self, rate: float) -> Floats:
        """Arrivals in seconds at `rate` requests per second."""
        return self.arrivals / rate

    def first(self, count: int) -> "Path":
        """The same path, cut after `count` requests."""
        return Path(self.arrivals[:count], self.prompts[:count], self.outputs[:count])

    def __len__(self) -> int:
        return len(self.arrivals)
