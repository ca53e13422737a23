"""One pass over one deployment. It keeps nothing for the next: killed at any point, the next one ends alike (B24)."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.parsing import SpecError, parse
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.cluster.asking import GatewayClient
from distserve_operator.cluster.caching import Key, ObjectCache
from distserve_operator.cluster.errors import ApiRefusedError
from distserve_operator.cluster.eventing import EventRecorder
from distserve_operator.cluster.reading import read_fleet, read_resource
from distserve_operator.cluster.writing import NOT_FOUND, ClusterWriter
from distserve_operator.conditions.failure import Failure
from distserve_operator.conditions.gateway import is_in_question
from distserve_operator.conditions.situation import Situation
from distserve_operator.conditions.status import status_of, status_of_invalid_spec, status_without_children
from distserve_operator.observed.answer import GatewayAnswer, Serves
from distserve_operator.plan.fleet_plan import make_plan
from distserve_operator.reconciling.acting import Actor
from distserve_operator.reconciling.happenings import of_actions, of_conditions
from distserve_operator.reconciling.placing import Placed, Placer
from distserve_operator.reconciling.role_situations import role_situations

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Acted:
    """A deployment after the actions of a pass; `failures` are those that were refused."""

    key: Key
    placed: Placed
    failures: tuple[Failure, ...] = ()
    wake_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """`complete`: nothing was refused and the gateway has a usable pair if it ought to.

    `wake_seconds`: look again then even if nothing happens.
    """

    complete: bool = True
    wake_seconds: float | None = None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Reconciler:
    """Passes for every deployment of this operator: first `act`, then `report`."""

    def __init__(
        self,
        cache: ObjectCache,
        writer: ClusterWriter,
        recorder: EventRecorder,
        gateways: GatewayClient,
        placer: Placer,
        settings: WorkloadSettings,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._recorder = recorder
        self._gateways = gateways
        self._placer = placer
        self._settings = settings
        self._actor = Actor(writer, settings)
        self._now = now

    async def act(self, key: Key) -> Acted | None:
        """Bring a deployment one step further; None when there is nothing to report about it.

        Raises `ApiUnreachableError` and, for a status that comes before all actions, `ApiRefusedError`.
        """
        resource = read_resource(self._cache, key)
        if resource is None or "deletionTimestamp" in resource["metadata"]:
            self._placer.forget(key)
            return None
        try:
            wanted = parse(resource)
        except SpecError as error:
            self._placer.forget(key)
            generation = resource["metadata"].get("generation", 1)
            status = status_of_invalid_spec(str(error), generation, resource.get("status") or {}, self._now())
            await self._write(resource, status)
            return None
        placed = await self._placer.place(key, resource, wanted)
        deployment = placed.decision.deployment
        if deployment is None or placed.decision.untouched is not None:
            return Acted(key, placed)
        plan = make_plan(deployment, self._settings, read_fleet(self._cache, key, deployment.uid), self._now())
        done, refused = await self._actor.perform(deployment, plan.actions)
        for happening in of_actions(done):
            self._recorder.record(resource, happening)
        return Acted(key, placed, (*plan.conflicts, *refused), plan.wake_at)

    async def report(self, acted: Acted) -> Outcome:
        """Ask the gateway if need be, and write the status. Raises `ApiUnreachableError` and `ApiRefusedError`."""
        placed, deployment = acted.placed, acted.placed.decision.deployment
        if deployment is None:
            previous = placed.resource.get("status") or {}
            status = status_without_children(placed.wanted, placed.decision, placed.memory(), previous, self._now())
            await self._write(placed.resource, status)
            return Outcome(wake_seconds=placed.wake_seconds)
        answer = await self._ask(acted, deployment)
        # Read after the question, and with what was just made: the status is about the present.
        situation = replace(self._situation(acted, deployment), answer=answer)
        now = self._now()
        status = status_of(situation, placed.memory(), placed.resource.get("status") or {}, now)
        await self._write(placed.resource, status)
        wakes = [] if acted.wake_at is None else [max((acted.wake_at - now).total_seconds(), 0.1)]
        wakes += [] if placed.wake_seconds is None else [placed.wake_seconds]
        served = answer is None or isinstance(answer, Serves)
        return Outcome(complete=served and not acted.failures, wake_seconds=min(wakes, default=None))

    async def _ask(self, acted: Acted, deployment: DistServeDeployment) -> GatewayAnswer | None:
        situation = self._situation(acted, deployment)
        pod = situation.fleet.ready_gateway
        if pod is None or situation.untouched is not None or not is_in_question(situation):
            return None
        return await self._gateways.ask(pod, deployment.model.served_name)

    def _situation(self, acted: Acted, deployment: DistServeDeployment) -> Situation:
        decision, failures = acted.placed.decision, acted.failures
        fleet = read_fleet(self._cache, acted.key, deployment.uid)
        roles = role_situations(deployment, self._settings, fleet, failures)
        return Situation(deployment, decision.verdict, roles, fleet, failures, decision.untouched)

    async def _write(self, resource: Mapping[str, Any], status: dict[str, Any]) -> None:
        before = resource.get("status") or {}
        if status == before:
            return
        try:
            await self._writer.write_status(resource, status)
        except ApiRefusedError as error:
            if error.status != NOT_FOUND:
                raise
            return
        for happening in of_conditions(before.get("conditions") or (), status["conditions"]):
            self._recorder.record(resource, happening)
