"""The operator dies after any number of writes to a real API server; the next one ends with the same objects."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from distserve_testing.clusters import Namespace
from distserve_testing.deployments import SETTINGS, auto_resource, resource
from distserve_testing.operator_process import running
from distserve_testing.played_gateway import PlayedGateway
from distserve_testing.searches import find_at_once
from kubernetes.aio import client, config

from distserve_operator.cluster.asking import GatewayClient, gateway_session
from distserve_operator.cluster.caching import Key, ObjectCache
from distserve_operator.cluster.errors import ApiRefusedError
from distserve_operator.cluster.eventing import EventRecorder
from distserve_operator.cluster.kinds import DEPLOYMENT_RESOURCE, POD, WATCHED, Kind
from distserve_operator.cluster.requesting import Api
from distserve_operator.cluster.surveying import largest_node, survey
from distserve_operator.cluster.writing import ClusterWriter
from distserve_operator.reconciling.passing import Reconciler
from distserve_operator.reconciling.placing import Placer
from distserve_operator.reconciling.searching import Searcher

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

LABEL = "distserve.io/deployment"
MOST_PASSES = 40
READS = ("get", "items")


class Died(BaseException):
    """The process is gone."""


@dataclass
class DyingApi:
    """The API until so many writes have been done; the next one is sent, but nobody hears the answer."""

    api: Api
    writes: int
    done: int = field(default=0)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.api, name)
        if name in READS:
            return method

        async def write(*arguments: Any) -> Any:
            answer = await method(*arguments)
            self.done += 1
            if self.done > self.writes:
                raise Died
            return answer

        return write


@dataclass
class Operators:
    """One life of an operator after the other, without kopf: each pass sees what the API server lists."""

    namespace: Namespace
    connection: client.ApiClient
    gateway: PlayedGateway

    async def deploy(self, name: str, **options: Any) -> None:
        """Create a deployment with its shape."""
        await self.create(resource(name, **options))

    async def create(self, body: dict[str, Any]) -> None:
        """Create a deployment."""
        body["metadata"] = {"name": body["metadata"]["name"]}
        await Api(self.connection).create(DEPLOYMENT_RESOURCE.path(self.namespace.name), body)

    async def edit(self, name: str, spec: dict[str, Any]) -> None:
        """Change fields of a deployment."""
        path = DEPLOYMENT_RESOURCE.path(self.namespace.name, name)
        await Api(self.connection).merge(path, {"spec": spec})

    async def objects_of(self, name: str) -> list[str]:
        """Kind and name of everything that belongs to a deployment, gateway pods apart."""
        found = []
        for kind, index in (await self._listed(name)).items():
            for body in index.get((self.namespace.name, name), []):
                component = (body["metadata"].get("labels") or {}).get("app.kubernetes.io/component")
                if kind != DEPLOYMENT_RESOURCE.name and (kind, component) != (POD.name, "gateway"):
                    found.append(f"{kind}/{body['metadata']['name'].removeprefix(name)}")
        return sorted(found)

    async def live(self, name: str, writes: int | None = None) -> int:
        """Passes until nothing is left to do, or until it dies; returns how many writes it did."""
        api = DyingApi(Api(self.connection), 10**9 if writes is None else writes)
        cache = ObjectCache()
        cache.complete()
        talking: Any = api
        async with gateway_session() as session:
            gateways, writer, recorder = GatewayClient(session), ClusterWriter(talking, cache), EventRecorder(talking)
            woken: asyncio.Queue[Key] = asyncio.Queue()
            searcher = Searcher(partial(survey, talking), woken.put_nowait, find_at_once)
            placer = Placer(searcher, partial(largest_node, talking), writer, recorder)
            reconciler = Reconciler(cache, writer, recorder, gateways, placer, SETTINGS)
            with suppress(Died):
                await self._run_passes(name, reconciler, cache, api, woken)
            await searcher.close()
        return api.done

    async def _run_passes(
        self, name: str, reconciler: Reconciler, cache: ObjectCache, api: DyingApi, woken: "asyncio.Queue[Key]"
    ) -> None:
        seen: set[str] = set()
        for _ in range(MOST_PASSES):
            listed = await self._listed(name)
            started = await self._play_kubelet(listed[POD.name][self.namespace.name, name])
            cache.bind(listed)
            now = {body["metadata"]["uid"] for index in listed.values() for bodies in index.values() for body in bodies}
            for uid in seen - now:
                cache.forget(uid)
            seen |= now
            before = api.done
            acted = await reconciler.act((self.namespace.name, name))
            if acted is not None:
                await reconciler.report(acted)
            if api.done == before and not started:
                if not await self._is_searching(name):
                    return
                await woken.get()
        raise AssertionError(f"still writing after {MOST_PASSES} passes")

    async def _is_searching(self, name: str) -> bool:
        found = await Api(self.connection).get(DEPLOYMENT_RESOURCE.path(self.namespace.name, name))
        return any(condition["reason"] == "Searching" for condition in found["status"]["conditions"])

    async def _listed(self, name: str) -> Mapping[str, Mapping[tuple[str, str], list[Any]]]:
        key = (self.namespace.name, name)
        lists = await asyncio.gather(*(self._list(kind, name) for kind in WATCHED))
        return {kind.name: {key: objects} for kind, objects in zip(WATCHED, lists, strict=True)}

    async def _list(self, kind: Kind, name: str) -> list[Any]:
        own = {"fieldSelector": f"metadata.name={name}"}
        query = own if kind is DEPLOYMENT_RESOURCE else {"labelSelector": f"{LABEL}={name}"}
        listed = await Api(self.connection).get(kind.path(self.namespace.name), query)
        version = f"{kind.group}/{kind.version}".lstrip("/")
        return [{**body, "apiVersion": version, "kind": kind.name} for body in listed["items"]]

    async def _play_kubelet(self, pods: list[Any]) -> bool:
        """Make all pods ready, for the next pass to see; says whether there was one that was not."""
        waiting = [pod["metadata"]["name"] for pod in pods if (pod.get("status") or {}).get("phase") != "Running"]
        for name in waiting:
            path = POD.path(self.namespace.name, name, "status")
            with suppress(ApiRefusedError):  # it was deleted meanwhile
                await Api(self.connection).merge(path, {"status": running(self.gateway.address)})
        return bool(waiting)


async def connect(namespace: Namespace) -> client.ApiClient:
    configuration = client.Configuration()
    await config.load_kube_config(str(namespace.cluster.kubeconfig), client_configuration=configuration)
    return client.ApiClient(configuration)


async def test_a_create_that_is_cut_off_anywhere_ends_like_one_that_is_not(
    namespace: Namespace, gateway: PlayedGateway
) -> None:
    """B24."""
    async with await connect(namespace) as connection:
        operators = Operators(namespace, connection, gateway)
        await operators.deploy("whole", prefill=2, max_devices=4)
        total = await operators.live("whole")
        expected = await operators.objects_of("whole")
        assert len(expected) == 8

        async def cut_off(writes: int) -> None:
            name = f"cut{writes}"
            await operators.deploy(name, prefill=2, max_devices=4)
            done = await operators.live(name, writes)
            # every object is one write; how many status writes follow depends on when the controllers fill in theirs
            assert done == writes + 1 or len(expected) <= done <= writes
            await operators.live(name)
            assert await operators.objects_of(name) == expected, f"after {writes} writes"

        await asyncio.gather(*map(cut_off, range(total)))


async def test_a_shape_that_is_searched_is_made_alike_wherever_it_is_cut_off(
    namespace: Namespace, gateway: PlayedGateway
) -> None:
    """B24."""
    async with await connect(namespace) as connection:
        operators = Operators(namespace, connection, gateway)
        await operators.create(auto_resource("whole"))
        total = await operators.live("whole")
        expected = await operators.objects_of("whole")
        assert len(expected) == 8

        async def cut_off(writes: int) -> None:
            name = f"cut{writes}"
            await operators.create(auto_resource(name))
            await operators.live(name, writes)
            await operators.live(name)
            assert await operators.objects_of(name) == expected, f"after {writes} writes"

        await asyncio.gather(*map(cut_off, range(total)))


NEW_MODEL: dict[str, Any] = {"model": {"uri": "pvc://models/new.gguf"}}
COLOCATED: dict[str, Any] = {"placement": {"prefill": None, "decode": None, "colocated": {"tp": 2}}}


@pytest.mark.parametrize(("change", "spare", "made"), [(NEW_MODEL, 0, 2), (NEW_MODEL, 1, 2), (COLOCATED, 0, 1)])
async def test_an_update_that_is_cut_off_anywhere_ends_like_one_that_is_not(
    namespace: Namespace, gateway: PlayedGateway, change: dict[str, Any], spare: int, made: int
) -> None:
    """B24, B26."""
    async with await connect(namespace) as connection:
        operators = Operators(namespace, connection, gateway)

        async def update(name: str, writes: int | None) -> tuple[list[str], list[str], int]:
            await operators.deploy(name, uri="pvc://models/old.gguf", max_devices=2 + spare)
            await operators.live(name)
            before = await operators.objects_of(name)
            await operators.edit(name, change)
            total = await operators.live(name, writes)
            await operators.live(name)
            return before, await operators.objects_of(name), total

        before, expected, total = await update("whole", None)
        assert len(set(expected) - set(before)) == made
        assert len(set(before) - set(expected)) == 2, "both workers are replaced"

        async def cut_off(writes: int) -> None:
            _, after, _ = await update(f"cut{writes}", writes)
            assert after == expected, f"after {writes} writes"

        await asyncio.gather(*map(cut_off, range(total)))
