"""What must be there before the gateway can answer, and whether it is going away."""

from distserve_worker.gateway.errors import unavailable
from distserve_worker.text.tokenizer import ModelText


class Readiness:
    """Filled in while the process starts; workers are no part of it: without them a 503 says why."""

    def __init__(self) -> None:
        self.discovered = False
        self.draining = False
        self._text: ModelText | None = None

    @property
    def text(self) -> ModelText:
        """The model's tokenizer and template. Raises `ApiError` (503) while they are loaded."""
        if self._text is None:
            raise unavailable("The gateway is still loading the tokenizer", "starting")
        return self._text

    def loaded(self, text: ModelText) -> None:
        """The tokenizer can be used from now on."""
        self._text = text

    @property
    def missing(self) -> list[str]:
        """What the gateway waits for; nothing when it is ready."""
        checks = {
            "the tokenizer is being loaded": self._text is None,
            "the workers have not been listed yet": not self.discovered,
            "the gateway is shutting down": self.draining,
        }
        return [reason for reason, holds in checks.items() if holds]
