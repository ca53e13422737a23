"""A DistServeDeployment that runs on a cluster: its pods, its endpoint, ways to break it, and its state after."""

import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import yaml

from distserve_devcluster.cluster import Cluster
from distserve_devcluster.locations import StateFolder
from distserve_devcluster.running import kill_container, publish
from distserve_testing.clusters import Manifest, Namespace, until

READY_SECONDS = 180
RESTART_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod of one container that is going to be killed and must come back by itself."""

    namespace: Namespace
    state: StateFolder
    pod: str

    @property
    def restarts(self) -> int:
        """How often its container was started again."""
        return int(self.namespace.container_status(self.pod).get("restartCount", 0))

    def kill(self) -> None:
        """kill -9 the first process of its container."""
        kill_container(self.state, self.namespace.name, self.pod, None, signal.SIGKILL)

    def wait_restarted(self, before: int) -> None:
        """Its container has been started again and is ready."""

        def restarted() -> bool:
            status = self.namespace.container_status(self.pod)
            return int(status.get("restartCount", 0)) > before and bool(status.get("ready"))

        until(restarted, f"{self.pod} was restarted and is ready", RESTART_SECONDS)


@dataclass(frozen=True, slots=True)
class Deployed:
    """One deployment in one namespace; `state` is that of a local cluster, of which alone anything can be killed."""

    namespace: Namespace
    state: StateFolder | None
    name: str
    base_url: str

    @classmethod
    def publish(cls, cluster: Cluster, state: StateFolder, namespace: str, name: str) -> "Deployed":
        """On a local cluster: publish the gateway's Service on 127.0.0.1."""
        port = publish(state, f"{namespace}/{name}", 0)
        return cls(Namespace(cluster, namespace), state, name, f"http://127.0.0.1:{port}")

    @classmethod
    @contextmanager
    def forward(cls, cluster: Cluster, namespace: str, name: str) -> Iterator["Deployed"]:
        """On any cluster: `kubectl port-forward` to the gateway's Service, which needs a ready pod behind it."""
        where = Namespace(cluster, namespace)
        waiting = cls(where, None, name, "")
        gateway = until(lambda: waiting.pods("gateway") or None, f"the gateway of {name} is made", READY_SECONDS)[0]
        where.wait_ready(gateway["metadata"]["name"], READY_SECONDS)
        port = waiting.resource()["spec"]["gateway"]["port"]
        command = [str(cluster.kubectl), "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace]
        command += ["port-forward", f"service/{name}", f":{port}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                found = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", process.stdout.readline())
                assert found, f"kubectl port-forward service/{name} said why it failed"
                yield replace(waiting, base_url=f"http://127.0.0.1:{found[1]}")
            finally:
                process.terminate()

    def resource(self) -> Manifest:
        """The DistServeDeployment as it is now."""
        return self.namespace.get("distservedeployment", self.name)

    def condition(self, kind: str) -> Mapping[str, str]:
        """A condition of the current generation; empty when there is none."""
        found = self.resource()
        for condition in found.get("status", {}).get("conditions", []):
            if condition["type"] == kind and condition["observedGeneration"] == found["metadata"]["generation"]:
                return dict(condition)
        return {}

    def wait_condition(self, kind: str, status: str, timeout_seconds: float = READY_SECONDS) -> Mapping[str, str]:
        """The condition once it has this status."""

        def reached() -> Mapping[str, str] | None:
            condition = self.condition(kind)
            return condition if condition.get("status") == status else None

        try:
            return until(reached, f"{kind} of {self.name} is {status}", timeout_seconds)
        except AssertionError as error:
            pods = self.namespace.kubectl("get", "pods", "-o", "wide")
            raise AssertionError(f"{error}\n{yaml.safe_dump(self.resource().get('status'))}\n{pods}") from error

    def wait_reason(self, kind: str, reason: str) -> Mapping[str, str]:
        """The condition once it has this reason."""

        def given() -> Mapping[str, str] | None:
            condition = self.condition(kind)
            return condition if condition.get("reason") == reason else None

        return until(given, f"{kind} of {self.name} gives the reason {reason}", RESTART_SECONDS)

    def wait_message(self, kind: str, text: str) -> Mapping[str, str]:
        """The condition once its message holds this text."""

        def told() -> Mapping[str, str] | None:
            condition = self.condition(kind)
            return condition if text in condition.get("message", "") else None

        return until(told, f"{kind} of {self.name} mentions {text}", RESTART_SECONDS)

    def pods(self, role: str) -> list[Manifest]:
        """Pods of a role that are not being deleted."""
        wanted = {"distserve.io/deployment": self.name, "distserve.io/role": role}
        return [
            pod
            for pod in self.namespace.list("pods")
            if wanted.items() <= pod["metadata"]["labels"].items() and "deletionTimestamp" not in pod["metadata"]
        ]

    def only_pod(self, role: str) -> str:
        """The name of the role's one pod."""
        (pod,) = self.pods(role)
        return str(pod["metadata"]["name"])

    def victim(self, role: str) -> "Victim":
        """The role's one pod, on a local cluster."""
        assert self.state is not None
        return Victim(self.namespace, self.state, self.only_pod(role))

    def worker_metric(self, pod: str, metric: str) -> float:
        """A gauge of a worker, read through the API server's proxy."""
        path = f"/api/v1/namespaces/{self.namespace.name}/pods/{pod}:9002/proxy/metrics"
        text = self.namespace.kubectl("get", "--raw", path)
        found = re.search(rf"^{metric} (\S+)$", text, re.MULTILINE)
        assert found, f"{metric} is not among the metrics of {pod}"
        return float(found[1])

    def wait_no_blocks_held(self) -> None:
        """Every worker has all its KV blocks free."""
        names = [str(pod["metadata"]["name"]) for role in ("prefill", "decode") for pod in self.pods(role)]

        def held() -> float:
            return sum(self.worker_metric(name, "distserve_kv_blocks_held") for name in names)

        until(lambda: held() == 0, f"{names} hold no KV block")

    def wait_serving(self) -> None:
        """The endpoint lists its model, which takes a usable pair."""

        def listed() -> bool:
            try:
                return bool(httpx.get(f"{self.base_url}/v1/models", timeout=5).json()["data"])
            except httpx.TransportError:
                return False

        until(listed, f"{self.name} lists its model", RESTART_SECONDS)


Reach = Callable[[str], Deployed]


def sample(path: Path, name: str, **model: Any) -> Manifest:
    """A sample with another name and other fields of its model."""
    manifest: Manifest = yaml.safe_load(path.read_text())
    manifest["metadata"]["name"] = name
    manifest["spec"]["model"] |= model
    return manifest
