"""A plan together with what it cost."""

from dataclasses import dataclass

from distserve_operator.placement.answer import Plan


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan and what it cost to find, in milliseconds of the clock and of all cores."""

    plan: Plan
    milliseconds: float
    cpu_milliseconds: float
