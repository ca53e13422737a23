"""Puts the operator's parts together and keeps them running; when one ends, all end."""

import asyncio
import logging
from functools import partial
from typing import Final

import kopf

from distserve_operator.arguments import Arguments
from distserve_operator.cluster.asking import GatewayClient, gateway_session
from distserve_operator.cluster.caching import Key, ObjectCache
from distserve_operator.cluster.connecting import connect
from distserve_operator.cluster.errors import ApiRefusedError, ApiUnreachableError
from distserve_operator.cluster.eventing import EventRecorder
from distserve_operator.cluster.kinds import DEPLOYMENT_RESOURCE
from distserve_operator.cluster.requesting import Api
from distserve_operator.cluster.surveying import largest_node, survey
from distserve_operator.cluster.writing import NOT_FOUND, ClusterWriter
from distserve_operator.handlers import operator_registry, operator_settings
from distserve_operator.probing import serve_probes
from distserve_operator.reconciling.passing import Reconciler
from distserve_operator.reconciling.placing import Placer
from distserve_operator.reconciling.searching import Searcher
from distserve_operator.reconciling.work_queue import WorkQueue
from distserve_operator.reconciling.working import PASS_SECONDS, resync, work

log = logging.getLogger(__name__)

CRD_WAIT_SECONDS: Final = 300.0
_CRD_POLL_SECONDS: Final = 1.0


class CrdMissingError(Exception):
    """The custom resource is not served."""


async def run_operator(arguments: Arguments) -> None:
    """Run until SIGTERM or SIGINT. Raises what ended it otherwise; the pod then starts anew."""
    connection = await connect()
    async with connection, gateway_session() as session:
        await _run(arguments, Api(connection), GatewayClient(session))


async def _run(arguments: Arguments, api: Api, gateways: GatewayClient) -> None:
    cache, queue = ObjectCache(), WorkQueue[Key]()
    recorder = EventRecorder(api)
    writer = ClusterWriter(api, cache)
    searcher = Searcher(partial(survey, api), queue.add)
    placer = Placer(searcher, partial(largest_node, api), writer, recorder)
    reconciler = Reconciler(cache, writer, recorder, gateways, placer, arguments.workloads)
    started = asyncio.Event()
    checks = {
        "/healthz": lambda: _stuck(queue),
        "/readyz": lambda: None if started.is_set() else "waiting for the custom resource definition",
    }
    probes = asyncio.create_task(serve_probes(arguments.health_port, checks))
    try:
        await _wait_for_crd(api, arguments)
        tasks = [
            probes,
            asyncio.create_task(work(queue, reconciler)),
            asyncio.create_task(resync(queue, api, cache, arguments.namespaces or (None,), arguments.resync_seconds)),
            asyncio.create_task(recorder.run()),
        ]
        await _watch_beside(tasks, arguments, cache, queue, started)
    finally:
        probes.cancel()
        await searcher.close()


async def _watch_beside(
    tasks: list[asyncio.Task[None]],
    arguments: Arguments,
    cache: ObjectCache,
    queue: WorkQueue[Key],
    started: asyncio.Event,
) -> None:
    """Run kopf next to `tasks`, none of which ever ends by itself. kopf is the one that hears SIGTERM."""
    watching = asyncio.create_task(
        kopf.operator(
            registry=operator_registry(cache, queue),
            settings=operator_settings(),
            standalone=True,
            clusterwide=arguments.namespaces is None,
            namespaces=arguments.namespaces or (),
            ready_flag=started,
        )
    )
    try:
        ended, _ = await asyncio.wait([watching, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in (watching, *tasks):
            task.cancel()
        await asyncio.gather(watching, *tasks, return_exceptions=True)


async def _wait_for_crd(api: Api, arguments: Arguments) -> None:
    """Return when the kinds are there: kopf looks for them only once."""
    namespace = arguments.namespaces[0] if arguments.namespaces else None
    path = DEPLOYMENT_RESOURCE.path(namespace)
    problem = ""
    try:
        async with asyncio.timeout(CRD_WAIT_SECONDS):
            while True:
                try:
                    await api.get(path, {"limit": "1"})
                except ApiUnreachableError as error:
                    problem = str(error)
                except ApiRefusedError as error:
                    problem = f"GET {path}: {error}"
                    if error.status == NOT_FOUND:
                        problem = f"{DEPLOYMENT_RESOURCE.plural}.{DEPLOYMENT_RESOURCE.group} is not installed"
                else:
                    return
                log.info("waiting: %s", problem)
                await asyncio.sleep(_CRD_POLL_SECONDS)
    except TimeoutError as error:
        raise CrdMissingError(f"no custom resources after {CRD_WAIT_SECONDS:.0f} s: {problem}") from error


def _stuck(queue: WorkQueue[Key]) -> str | None:
    seconds = queue.longest_pass()
    return f"a pass has been running for {seconds:.0f} s" if seconds > 2 * PASS_SECONDS else None
