"""The operator dies after any number of writes to a real API server; the next one ends with the same objects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from distserve_testing.clusters import Namespace
from distserve_testing.deployments import SETTINGS, resource
from distserve_testing.operator_process import running
from distserve_testing.played_gateway import PlayedGateway
from kubernetes.aio import client, config

from distserve_operator.cluster.asking import GatewayClient, gateway_session
from distserve_operator.cluster.caching import ObjectCache
from distserve_operator.cluster.eventing import EventRecorder
from distserve_operator.cluster.kinds import DEPLOYMENT_RESOURCE, POD, WATCHED
from distserve_operator.cluster.requesting import Api
from distserve_operator.cluster.writing import ClusterWriter
from distserve_operator.reconciling.passing import Reconciler

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

LABEL = "distserve.io/deployment"
MOST_PASSES = 40


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
        if name == "get":
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
        """Create a deployment."""
        body = resource(name, **options)
        body["metadata"] = {"name": name}
        await Api(self.connection).create(DEPLOYMENT_RESOURCE.path(self.namespace.name), body)

    async def edit(self, name: str, uri: str) -> None:
        """Change the model of a deployment, which renews its workers."""
        path = DEPLOYMENT_RESOURCE.path(self.namespace.name, name)
        await Api(self.connection).merge(path, {"spec": {"model": {"uri": uri}}})

    async def objects_of(self, name: str) -> list[str]:
        """Kind and name of everything that belongs to a deployment, gateway pods apart."""
        found = []
        for kind, index in (await self._listed()).items():
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
        writer, recorder = ClusterWriter(talking, cache), EventRecorder(talking)
        seen: set[str] = set()
        for _ in range(MOST_PASSES):
            listed = await self._listed()
            cache.bind(listed)
            now = {body["metadata"]["uid"] for index in listed.values() for bodies in index.values() for body in bodies}
            for uid in seen - now:
                cache.forget(uid)
            seen |= now
            before = api.done
            try:
                async with gateway_session() as session:
                    reconciler = Reconciler(cache, writer, recorder, GatewayClient(session), SETTINGS)
                    acted = await reconciler.act((self.namespace.name, name))
                    if acted is not None:
                        await reconciler.report(acted)
            except Died:
                return api.done
            if not await self._play_kubelet(name) and api.done == before:
                return api.done
        raise AssertionError(f"still writing after {MOST_PASSES} passes")

    async def _listed(self) -> Mapping[str, Mapping[tuple[str, str], list[Any]]]:
        found: dict[str, dict[tuple[str, str], list[Any]]] = {}
        for kind in WATCHED:
            index = found.setdefault(kind.name, {})
            for body in (await Api(self.connection).get(kind.path(self.namespace.name)))["items"]:
                labels = body["metadata"].get("labels") or {}
                name = body["metadata"]["name"] if kind is DEPLOYMENT_RESOURCE else labels.get(LABEL, "")
                version = f"{kind.group}/{kind.version}".lstrip("/")
                full = {**body, "apiVersion": version, "kind": kind.name}
                index.setdefault((self.namespace.name, name), []).append(full)
        return found

    async def _play_kubelet(self, name: str) -> bool:
        """Make all pods ready; says whether there was one that was not."""
        pods = await Api(self.connection).get(POD.path(self.namespace.name), {"labelSelector": f"{LABEL}={name}"})
        waiting = [pod for pod in pods["items"] if (pod.get("status") or {}).get("phase") != "Running"]
        for pod in waiting:
            path = POD.path(self.namespace.name, pod["metadata"]["name"], "status")
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
        for writes in range(total):
            name = f"cut{writes}"
            await operators.deploy(name, prefill=2, max_devices=4)
            assert await operators.live(name, writes) == writes + 1
            await operators.live(name)
            assert await operators.objects_of(name) == expected, f"after {writes} writes"


@pytest.mark.parametrize("spare", [0, 1])
async def test_an_update_that_is_cut_off_anywhere_ends_like_one_that_is_not(
    namespace: Namespace, gateway: PlayedGateway, spare: int
) -> None:
    """B24, B26."""
    old, new = "pvc://models/old.gguf", "pvc://models/new.gguf"
    async with await connect(namespace) as connection:
        operators = Operators(namespace, connection, gateway)
        await operators.deploy("whole", uri=old, max_devices=2 + spare)
        await operators.live("whole")
        before = await operators.objects_of("whole")
        await operators.edit("whole", new)
        total = await operators.live("whole")
        expected = await operators.objects_of("whole")
        assert len(expected) == len(before)
        assert len(set(expected) & set(before)) == len(before) - 2
        await operators.deploy("cut", uri=old, max_devices=2 + spare)
        for writes in range(0, total, 2):
            await operators.edit("cut", old)
            await operators.live("cut")
            assert await operators.objects_of("cut") == before
            await operators.edit("cut", new)
            await operators.live("cut", writes)
            await operators.live("cut")
            assert await operators.objects_of("cut") == expected, f"after {writes} writes"
