"""Ways to cut an instance, and requests that show whether the cut matters."""

import itertools
from typing import Final

from distserve_worker.engine.interface import Work
from distserve_worker.engine.parallel import Grid

GRIDS: Final = tuple(Grid(tp, pp) for tp, pp in itertools.product((1, 2), (1, 2)))
NAMES: Final = [f"tp{grid.tp}-pp{grid.pp}" for grid in GRIDS]
SHARED: Final = tuple(range(50, 90))  # two blocks and a half
GREEDY: Final = (
    Work("first", (*SHARED, 3), max_tokens=20),
    Work("again", (*SHARED, 4, 5), max_tokens=20),
    Work("short", (7,), max_tokens=12),
    Work("block", tuple(range(16)), max_tokens=9),
)
