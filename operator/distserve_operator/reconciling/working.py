"""Takes dirty deployments from the queue and runs their passes; looks at all of them now and then."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from distserve_operator.cluster.caching import Key, ObjectCache
from distserve_operator.cluster.errors import ApiRefusedError, ApiUnreachableError
from distserve_operator.cluster.kinds import DEPLOYMENT_RESOURCE
from distserve_operator.cluster.requesting import Api
from distserve_operator.cluster.verifying import find_lost
from distserve_operator.reconciling.passing import Outcome, Reconciler
from distserve_operator.reconciling.work_queue import WorkQueue

log = logging.getLogger(__name__)

_ACTING_AT_ONCE: Final = 4
PASS_SECONDS: Final = 120.0
_RESYNC_TIMEOUT_SECONDS: Final = 60.0


async def work(queue: WorkQueue[Key], reconciler: Reconciler) -> None:
    """Run passes until cancelled: a few act at a time, and none waits for the gateway of another."""
    slots = asyncio.Semaphore(_ACTING_AT_ONCE)
    async with asyncio.TaskGroup() as passes:
        while True:
            await slots.acquire()
            key = await queue.take()
            passes.create_task(_run_pass(queue, reconciler, key, slots), name=f"pass of {'/'.join(key)}")


async def resync(
    queue: WorkQueue[Key], api: Api, cache: ObjectCache, namespaces: Sequence[str | None], seconds: float
) -> None:
    """Every so often: find what broken watches have missed and look at every deployment, until cancelled."""
    while True:
        await asyncio.sleep(seconds)
        try:
            async with asyncio.timeout(_RESYNC_TIMEOUT_SECONDS):
                concerned = await find_lost(api, cache, namespaces)
        except (ApiRefusedError, ApiUnreachableError, TimeoutError) as error:
            log.warning("the resync has failed and is tried again: %s", error or type(error).__name__)
            continue
        for key in concerned | set(cache.keys(DEPLOYMENT_RESOURCE.name)):
            queue.add(key)


async def _run_pass(queue: WorkQueue[Key], reconciler: Reconciler, key: Key, slots: asyncio.Semaphore) -> None:
    where = "/".join(key)
    try:
        async with asyncio.timeout(PASS_SECONDS):
            try:
                acted = await reconciler.act(key)
            finally:
                slots.release()
            outcome = Outcome() if acted is None else await reconciler.report(acted)
    except (ApiRefusedError, ApiUnreachableError, TimeoutError) as error:
        log.warning("%s: %s; next try in %.1f s", where, error or type(error).__name__, queue.retry(key))
    except Exception:  # what breaks one deployment must not stop the others
        log.exception("%s: the pass has failed; next try in %.1f s", where, queue.retry(key))
    else:
        if outcome.complete:
            queue.succeeded(key)
        else:
            queue.retry(key)
        if outcome.wake_seconds is not None:
            queue.add_after(key, outcome.wake_seconds)
    finally:
        queue.done(key)
