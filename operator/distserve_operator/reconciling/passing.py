"""One pass over one deployment. It keeps nothing for the next: killed at any point, the next one ends alike (B24)."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.parsing import SpecError, parse
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.cluster.caching import Key, ObjectCache
from distserve_operator.cluster.errors import ApiRefusedError
from distserve_operator.cluster.eventing import EventRecorder
from distserve_operator.cluster.reading import read_fleet, read_resource
from distserve_operator.cluster.writing import NOT_FOUND, ClusterWriter
from distserve_operator.conditions.failure import Failure
from distserve_operator.conditions.situation import RoleSituation, Situation
from distserve_operator.conditions.status import status_of, status_of_invalid_spec
from distserve_operator.manifests.worker_template import worker_template
from distserve_operator.observed.fleet import Fleet
from distserve_operator.plan.fleet_plan import make_plan
from distserve_operator.reconciling.acting import Actor
from distserve_operator.reconciling.happenings import of_actions, of_conditions
from distserve_proto.contract import Role

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`complete`: nothing was refused. `wake_seconds`: look again then even if nothing happens."""

    complete: bool = True
    wake_seconds: float | None = None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Reconciler:
    """Passes for every deployment of this operator."""

    def __init__(
        self,
        cache: ObjectCache,
        writer: ClusterWriter,
        recorder: EventRecorder,
        settings: WorkloadSettings,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._recorder = recorder
        self._settings = settings
        self._actor = Actor(writer, settings)
        self._now = now

    async def run(self, key: Key) -> Outcome:
        """Bring a deployment one step further. Raises `ApiUnreachableError` and, for its status, `ApiRefusedError`."""
        resource = read_resource(self._cache, key)
        if resource is None or "deletionTimestamp" in resource["metadata"]:
            return Outcome()
        try:
            deployment = parse(resource)
        except SpecError as error:
            generation = resource["metadata"].get("generation", 1)
            status = status_of_invalid_spec(str(error), generation, resource.get("status") or {}, self._now())
            await self._write(resource, status)
            return Outcome()
        return await self._reconcile(key, resource, deployment)

    async def _reconcile(self, key: Key, resource: Mapping[str, Any], deployment: DistServeDeployment) -> Outcome:
        now = self._now()
        plan = make_plan(deployment, self._settings, read_fleet(self._cache, key, deployment.uid), now)
        done, refused = await self._actor.perform(deployment, plan.actions)
        for happening in of_actions(done):
            self._recorder.record(resource, happening)
        failures = (*plan.conflicts, *refused)
        # What was just made is in the cache already, so that the status is about the present.
        situation = self._situation(deployment, read_fleet(self._cache, key, deployment.uid), failures)
        await self._write(resource, status_of(situation, resource.get("status") or {}, now))
        wake = None if plan.wake_at is None else max((plan.wake_at - self._now()).total_seconds(), 0.1)
        return Outcome(complete=not failures, wake_seconds=wake)

    def _situation(self, deployment: DistServeDeployment, fleet: Fleet, failures: tuple[Failure, ...]) -> Situation:
        def role_situation(role: Role) -> RoleSituation:
            template = worker_template(deployment, role, self._settings)
            mine = tuple(failure for failure in failures if failure.role in {role, None})
            most = deployment.cluster.max_devices
            return RoleSituation(role, template.shape, template.hash, most, fleet.of_role(role), mine)

        return Situation(deployment, role_situation(Role.PREFILL), role_situation(Role.DECODE), fleet, failures)

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
