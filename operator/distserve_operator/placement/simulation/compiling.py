"""How the simulation is compiled: once, into a cache that belongs to exactly this source.

The compiled functions allocate nothing, so they do without counting references, and each becomes part of its callers:
a state of thirty arrays costs hundreds of words to hand on. Either makes them several times faster.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
from numba.core.caching import UserProvidedCacheLocator

Function = TypeVar("Function", bound=Callable[..., object])


def cache_folder() -> Path:
    """Where compiled functions are kept: numba looks at one file only, while these are compiled into each other."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "distserve" / "simulation" / digest.hexdigest()[:20]


class SourceLocator(UserProvidedCacheLocator):
    """One place for a source wherever it lies: by itself numba compiles every copy of it anew."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The folder of a file's compiled functions, inside of the whole cache."""
        return Path(py_file).stem


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]
    # after ours, for a home that cannot be written, those of numba beside the source and elsewhere
    _LOCATORS: Final = (f"{__name__}.{SourceLocator.__name__}", "InTreeCacheLocator", "UserWideCacheLocator")
    numba.config.CACHE_LOCATOR_CLASSES = ",".join(_LOCATORS)  # type: ignore[attr-defined]

_compile: Final[Any] = numba.njit(cache=True, error_model="numpy", forceinline=True, _nrt=False)  # type: ignore[call-overload]


def compiled(function: Function) -> Function:
    """Compile a function on its first call."""
    return cast("Function", _compile(function))
