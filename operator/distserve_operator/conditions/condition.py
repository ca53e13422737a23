"""A condition, and the list of them as the API wants it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

_LONGEST_MESSAGE: Final = 2048


class ConditionType(StrEnum):
    """Every condition that a DistServeDeployment may have; of roles those that its shape has."""

    READY = "Ready"
    PLACEMENT = "PlacementReady"
    PREFILL = "PrefillReady"
    DECODE = "DecodeReady"
    COLOCATED = "ColocatedReady"
    GATEWAY = "GatewayReady"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class State(StrEnum):
    """`status` of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check says. `permanent`: nothing will change until a person acts."""

    state: State
    reason: str
    message: str
    permanent: bool = False

    @property
    def holds(self) -> bool:
        """Whether the condition is True."""
        return self.state is State.TRUE


Verdicts = Mapping[ConditionType, Verdict]


def render(
    verdicts: Verdicts, generation: int, previous: Iterable[Mapping[str, Any]], now: datetime
) -> list[dict[str, Any]]:
    """`status.conditions`; `lastTransitionTime` moves only when a status flips."""
    before = {condition.get("type"): condition for condition in previous}
    return [
        {
            "type": str(kind),
            "status": str(verdict.state),
            "reason": verdict.reason,
            "message": _cut(verdict.message),
            "lastTransitionTime": _since(before.get(kind), verdict, now),
            "observedGeneration": generation,
        }
        for kind, verdict in verdicts.items()
    ]


def _since(before: Mapping[str, Any] | None, verdict: Verdict, now: datetime) -> str:
    if before is not None and before.get("status") == verdict.state and before.get("lastTransitionTime"):
        return str(before["lastTransitionTime"])
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"
