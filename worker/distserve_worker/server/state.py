"""What a worker says about itself to probes."""

import time
from enum import StrEnum


class Stage(StrEnum):
    """Where a worker process is in its life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class State:
    """The present stage; `ready` means that gateways may route to the worker."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._began = time.monotonic()
        self.stage = Stage.LOADING
        # written by the engine thread:
        self.downloaded: tuple[int, int] | None = None  # bytes, and of how many as far as is known
        self.loaded: float | None = None  # share of the weights

    @property
    def ready(self) -> bool:
        """Whether it takes new work."""
        return self.stage is Stage.READY

    @property
    def text(self) -> str:
        """For people who read the probe's answer."""
        if self.stage is Stage.LOADING:
            return f"{self.stage} {self._model} for {time.monotonic() - self._began:.0f} s{self._progress}"
        return str(self.stage)

    @property
    def _progress(self) -> str:
        if self.loaded is not None:
            return f", {self.loaded:.0%} of the weights"
        if self.downloaded is not None:
            done, total = self.downloaded
            return f", {done // 10**6} of {total // 10**6} MB downloaded"
        return ""
