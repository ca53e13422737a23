"""How far a download is: what the hub's library draws as progress bars, as numbers for a listener and for the log."""

import logging
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final, Self

logger = logging.getLogger(__name__)

Downloading = Callable[[int, int], None]  # is told how many bytes are there, and of how many

_BYTES: Final = "B"  # unit of the bars that count them; others count files
_LOGGED: Final = 10_000_000  # bytes between two lines of the log at least; a tenth of all where that is more


class Tally:
    """All bars of one download. The total grows when further files are begun, of which eight are at a time."""

    def __init__(self, uri: str, listener: Downloading) -> None:
        self._uri = uri
        self._listener = listener
        self._bars: list[Bar] = []
        self._logged = 0
        self._lock = Lock()  # files are downloaded by threads

    def bar(self, *, total: float | None = None, initial: float = 0, unit: str = "", **_: object) -> "Bar":
        """What the library makes its bars with; how they would look is none of ours."""
        bar = Bar(self, total or 0, initial)
        if unit == _BYTES:
            self._bars.append(bar)
        return bar

    def advance(self, bar: "Bar", count: float) -> None:
        """So much more of a bar. One of them counts bytes out of the network, another one those on the disk."""
        with self._lock:
            bar.n += count
            done = int(max((one.n for one in self._bars), default=0))
            total = int(max((one.total for one in self._bars), default=0))
            if bar in self._bars and total:
                self._listener(done, total)
                self._log(done, total)

    def _log(self, done: int, total: int) -> None:
        if done - self._logged >= max(_LOGGED, total // 10):
            self._logged = done
            logger.info("downloading %s: %d of %d MB", self._uri, done // 10**6, total // 10**6)


class Bar:
    """As much of a bar of tqdm as the library uses."""

    def __init__(self, tally: Tally, total: float, initial: float) -> None:
        self._tally = tally
        self.total = total
        self.n = initial

    def update(self, count: float | None = 1) -> None:
        """So much more."""
        self._tally.advance(self, count or 0)

    @property
    def format_dict(self) -> Mapping[str, Any]:
        """Speed, for the bar's own text: none is shown."""
        return {}

    def ignore(self, *_: object, **__: object) -> None:
        """What only changes how a bar looks."""

    refresh = close = set_description = set_description_str = set_postfix_str = ignore

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left of a bar."""
