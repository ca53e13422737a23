"""The shape of a deployment in a pass: has it searched if need be, and records what was found before it is made."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from distserve_operator.api.deployment import Wanted
from distserve_operator.api.shape import Placement
from distserve_operator.api.targets import Targets
from distserve_operator.cluster.caching import Key
from distserve_operator.cluster.eventing import EventRecorder
from distserve_operator.cluster.writing import ClusterWriter
from distserve_operator.conditions.decision import Decision, decide
from distserve_operator.conditions.memory import Memory, memory_after, memory_with_plan
from distserve_operator.manifests.metadata import VERSION
from distserve_operator.observed.recorded import RecordedPlan, Serving, recorded_plan, recorded_serving
from distserve_operator.observed.search import Answered, NoNode, Search, SearchFailed, Searching
from distserve_operator.plan.inputs import fleet_digest, inputs_digest
from distserve_operator.plan.refusals import refusal, too_large
from distserve_operator.reconciling.happenings import of_plan
from distserve_operator.reconciling.searching import Asked, Searcher

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Placed:
    """What is known of the shape, and what follows from it; `resource` has the newest status."""

    resource: Body
    wanted: Wanted
    search: Search | None
    decision: Decision

    @property
    def wake_seconds(self) -> float | None:
        """When to look again even if nothing happens."""
        return self.search.again_seconds if isinstance(self.search, SearchFailed) else None

    def memory(self) -> Memory:
        """What the status has to remember."""
        previous = self.resource.get("status") or {}
        return memory_after(previous, self.wanted, self.search, self.decision, fleet_digest(self.wanted))


class Placer:
    """Decides for one deployment after the other; only its searches outlast a pass, and they can be done again."""

    def __init__(
        self,
        searcher: Searcher,
        largest_node: Callable[[Wanted], Awaitable[int | None]],
        writer: ClusterWriter,
        recorder: EventRecorder,
    ) -> None:
        """`largest_node`: devices of the largest node there is for a deployment, None when that is not known."""
        self._searcher = searcher
        self._largest_node = largest_node
        self._writer = writer
        self._recorder = recorder

    def forget(self, key: Key) -> None:
        """The deployment is gone or not understood."""
        self._searcher.forget(key)

    async def place(self, key: Key, resource: Body, wanted: Wanted) -> Placed:
        """What to do about the shape now. Raises `ApiRefusedError` and `ApiUnreachableError` if it is not recorded."""
        if not isinstance(wanted.placement, Targets):
            self._searcher.forget(key)
            return _placed(resource, wanted, await self._without_node(resource, wanted, wanted.placement))
        obstacle = refusal(wanted)
        if obstacle is not None:
            self._searcher.forget(key)
            return _placed(resource, wanted, obstacle)
        return await self._searched(key, resource, wanted, wanted.placement)

    async def _without_node(self, resource: Body, wanted: Wanted, placement: Placement) -> NoNode | None:
        """B35: with numbers, before any pod is made; nodes may yet come, but hardly larger ones than there are."""
        if recorded_serving(resource.get("status")) == Serving(placement, fleet_digest(wanted)):
            return None
        most = max(shape.devices_per_instance for shape in placement.shapes.values())
        largest = await self._largest_node(wanted) if most > 1 else None
        return None if largest is None else too_large(wanted.cluster, placement, largest)

    async def _searched(self, key: Key, resource: Body, wanted: Wanted, targets: Targets) -> Placed:
        digest = inputs_digest(wanted, targets)
        answer = _answer_for(digest, resource)
        if answer is not None and answer.feasible:
            self._searcher.forget(key)
            return _placed(resource, wanted, Answered(answer))
        known = None if answer is None else answer.inventory
        progress = self._searcher.ask(key, Asked(digest, wanted, targets, known))
        if progress.answer is not None:
            return await self._record(key, resource, wanted, progress.answer)
        if answer is not None:
            return _placed(resource, wanted, Answered(answer))
        return _placed(resource, wanted, progress.failure or Searching())

    async def _record(self, key: Key, resource: Body, wanted: Wanted, found: Mapping[str, Any]) -> Placed:
        """From here on the answer outlives this process, and is not asked for again."""
        before = resource.get("status") or {}
        plan = {**found, "planner": VERSION, "observedGeneration": wanted.generation}
        answer = recorded_plan({"plan": plan})
        assert answer is not None
        decision = decide(wanted, Answered(answer), recorded_serving(before), fleet_digest(wanted))
        status = {**before, **memory_with_plan(before, plan, decision, fleet_digest(wanted))}
        await self._writer.write_status(resource, status)
        self._searcher.recorded(key)
        self._recorder.record(resource, of_plan(before, answer, decision.verdict))
        return Placed({**resource, "status": status}, wanted, Answered(answer), decision)


def _placed(resource: Body, wanted: Wanted, search: Search | None) -> Placed:
    serving = recorded_serving(resource.get("status"))
    return Placed(resource, wanted, search, decide(wanted, search, serving, fleet_digest(wanted)))


def _answer_for(digest: str, resource: Body) -> RecordedPlan | None:
    """The recorded answer if it is for these inputs. What was not feasible for another version is asked again."""
    answer = recorded_plan(resource.get("status"))
    if answer is None or answer.inputs_digest != digest:
        return None
    return answer if answer.feasible or answer.planner == VERSION else None
