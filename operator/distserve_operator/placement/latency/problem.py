"""What can be wrong with a profile."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: the place in the document, what stands there, why that cannot be, and what to do."""

    path: str
    value: str
    reason: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.value} {self.reason}; {self.fix}"


class ProfileError(ValueError):
    """A profile that is not used, and all of its problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("the profile is not used:" + "".join(f"\n  {problem}" for problem in problems))


class MalformedProfileError(ProfileError):
    """A document that is no profile, or lacks something."""


class PoorFitError(ProfileError):
    """Laws that no engine can have; used only where the user allows a poor fit."""


class ProfileMismatchError(ProfileError):
    """A profile of another model, device, weight type or engine."""
