"""How far the search for the shape of a deployment has come, or what stands against the shape that is written."""

from dataclasses import dataclass

from distserve_operator.observed.recorded import RecordedPlan


@dataclass(frozen=True, slots=True)
class Searching:
    """It is under way."""


@dataclass(frozen=True, slots=True)
class SearchFailed:
    """It has ended without an answer and is tried again in `again_seconds`."""

    message: str
    again_seconds: float


@dataclass(frozen=True, slots=True)
class Unanswerable:
    """There is nothing to search before the spec is changed; `reason` is the condition's."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NoNode:
    """The shape that is written needs larger nodes than there are."""

    message: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer for the present spec; not necessarily a feasible one."""

    plan: RecordedPlan


Search = Searching | SearchFailed | Unanswerable | NoNode | Answered
