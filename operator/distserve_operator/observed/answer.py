"""What a gateway says when it is asked whether it could take a request now."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Serves:
    """It has at least one usable pair of instances."""


@dataclass(frozen=True, slots=True)
class CannotServe:
    """It would refuse every request; `reason` is what it tells clients."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """It could not be asked, or did not answer as a gateway does."""

    why: str


GatewayAnswer = Serves | CannotServe | NoAnswer
