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

    @property
    def ready(self) -> bool:
        """Whether it takes new work."""
        return self.stage is Stage.READY

    @property
    def text(self) -> str:
        """For people who read the probe's answer."""
        if self.stage is Stage.LOADING:
            return f"{self.stage} {self._model} for {time.monotonic() - self._began:.0f} s"
        return str(self.stage)
