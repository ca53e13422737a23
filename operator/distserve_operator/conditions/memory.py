"""The part of the status that is read back: what the search has answered, and the shape that is kept up."""

from collections.abc import Mapping
from typing import Any, Final

from distserve_operator.api.deployment import Wanted
from distserve_operator.api.shape import Placement
from distserve_operator.conditions.decision import Decision
from distserve_operator.observed.recorded import serving_status
from distserve_operator.observed.search import Answered, Search

Memory = dict[str, Any]
_FIELDS: Final = ("plan", "serving")


def memory_of(previous: Mapping[str, Any]) -> Memory:
    """As it is."""
    return {name: previous[name] for name in _FIELDS if name in previous}


def memory_after(
    previous: Mapping[str, Any], wanted: Wanted, search: Search | None, decision: Decision, fleet_digest: str
) -> Memory:
    """After a pass: the shape that is served is noted; an answer stays until there is another one."""
    memory = memory_of(previous)
    if isinstance(wanted.placement, Placement):
        memory.pop("plan", None)
        if decision.verdict.holds:
            memory["plan"] = {"shape": str(wanted.placement), "devices": wanted.placement.devices}
    elif isinstance(search, Answered):
        memory["plan"] = {**memory["plan"], "observedGeneration": wanted.generation}
    return _with_serving(memory, decision, fleet_digest)


def memory_with_plan(
    previous: Mapping[str, Any], plan: Mapping[str, Any], decision: Decision, fleet_digest: str
) -> Memory:
    """With a new answer, and the shape that will be made of it: after a crash nothing stands there unexplained."""
    return _with_serving(memory_of(previous) | {"plan": dict(plan)}, decision, fleet_digest)


def _with_serving(memory: Memory, decision: Decision, fleet_digest: str) -> Memory:
    """An older shape that goes on serving stays as it was noted."""
    if not decision.verdict.holds or decision.untouched is not None or decision.deployment is None:
        return memory
    return memory | {"serving": serving_status(decision.deployment.placement, fleet_digest)}
