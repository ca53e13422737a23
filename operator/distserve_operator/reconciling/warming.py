"""Has the simulator compiled before the first search needs it.

`python -m distserve_operator.reconciling.warming` compiles it into the cache of whoever runs it, as when an image is
built. Containers take it from there: compiled code is used only in a folder that can be written, and theirs are empty.
"""

import os
import shutil
from pathlib import Path
from typing import Final

# A folder of caches that were filled beforehand, as `${XDG_CACHE_HOME}/distserve/simulation`.
ENV_COMPILED: Final = "DISTSERVE_COMPILED"


def load_simulator() -> None:
    """Make the simulator ready: out of the cache, out of what was compiled beforehand, or by compiling it now."""
    take_compiled()
    # Only now: what is imported here looks into the cache at once.
    from distserve_operator.placement.simulation.loading import load

    load()


def take_compiled() -> None:
    """Fill an empty cache with what was compiled beforehand for this very simulator, if there is any."""
    from distserve_operator.placement.simulation.compiling import cache_folder

    own, ready = cache_folder(), os.environ.get(ENV_COMPILED)
    if ready is None or own.exists():
        return
    source, unfinished = Path(ready) / own.name, own.with_suffix(".unfinished")
    if source.is_dir():
        shutil.copytree(source, unfinished, dirs_exist_ok=True, copy_function=shutil.copyfile)
        unfinished.rename(own)


if __name__ == "__main__":
    load_simulator()
