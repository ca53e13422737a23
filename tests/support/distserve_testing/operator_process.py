"""The operator as a plain process beside a cluster, to be killed at any moment, and pods whose kubelet is the test."""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from distserve_testing.clusters import Manifest, Namespace, until
from distserve_testing.played_gateway import PlayedGateway
from distserve_testing.rest import CHILDREN, Rest

STOP_SECONDS = 20


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class OperatorProcess:
    """One operator of one namespace; `start` may be called again after `kill` or `stop`."""

    namespace: Namespace
    log: Path
    port: int = field(default_factory=free_port)
    worker_image: str = "distserve/worker:dev"
    gateway_image: str = "distserve/gateway:dev"
    cluster_role: str = "distserve-gateway"
    _process: subprocess.Popen[bytes] | None = None

    def start(self, **changes: str) -> None:
        """Start it, with other images if `changes` says so."""
        for name, value in changes.items():
            setattr(self, name, value)
        arguments = [
            f"--namespace={self.namespace.name}",
            f"--worker-image={self.worker_image}",
            f"--gateway-image={self.gateway_image}",
            f"--gateway-cluster-role={self.cluster_role}",
            f"--health-port={self.port}",
            "--resync-seconds=1",
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "distserve_operator", *arguments],
                env=os.environ | {"KUBECONFIG": str(self.namespace.cluster.kubeconfig)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process."""
        assert self._process is not None, "the operator has not been started"
        return self._process

    def kill(self) -> None:
        """kill -9."""
        self.running.kill()
        self.running.wait(STOP_SECONDS)

    def stop(self) -> int:
        """SIGTERM; returns its exit status."""
        self.running.terminate()
        return self.running.wait(STOP_SECONDS)

    def freeze(self) -> None:
        """It does nothing until `thaw`."""
        self.running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        self.running.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self.kill()

    def wait_ready(self) -> None:
        """It has found the custom resource and watches."""
        until(lambda: self.probe("/readyz") == 200, "the operator is ready")

    def probe(self, path: str) -> int | None:
        """The status of one of its probes; None when it does not answer."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=5).status_code
        except httpx.TransportError:
            return None

    def said(self, text: str) -> bool:
        """Whether its log has this text."""
        return text in self.log.read_text()


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the operator made of one deployment, on a cluster whose nodes take no pods; the test plays its gateway."""

    rest: Rest
    namespace: Namespace
    name: str
    gateway: PlayedGateway

    def resource(self) -> Manifest:
        """The custom resource."""
        return self.rest.get("distservedeployments", self.namespace.name, self.name)

    def condition(self, kind: str) -> dict[str, Any]:
        """A condition of the current generation; empty when there is none."""
        found = self.resource()
        generation = found["metadata"]["generation"]
        conditions = found.get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind and c["observedGeneration"] == generation), {})

    def wait_condition(self, kind: str, status: str, reason: str | None = None) -> dict[str, Any]:
        """The condition once it is so."""

        def reached() -> dict[str, Any] | None:
            found = self.condition(kind)
            return found if found.get("status") == status and reason in {None, found.get("reason")} else None

        try:
            return until(reached, f"{kind} is {status} {reason or ''}", 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.resource().get('status'), indent=1)}") from error

    def wait_told(self, reason: str) -> None:
        """`kubectl describe` shows an event of this reason; events follow what they tell of by a little."""

        def shown() -> bool:
            described = self.namespace.kubectl("describe", "dsd", self.name)
            return reason in described.partition("Events:")[2]

        until(shown, f"an event tells of {reason}", 30)

    def children(self, *kinds: str) -> list[Manifest]:
        """Objects of some kinds, of all without an argument, that belong to the deployment."""
        selector = f"distserve.io/deployment={self.name}"
        return [each for kind in kinds or CHILDREN for each in self.rest.list(kind, self.namespace.name, selector)]

    def workers(self) -> list[Manifest]:
        """Worker pods that are not being deleted."""
        return [
            pod
            for pod in self.children("pods")
            if pod["metadata"]["labels"].get("distserve.io/role") != "gateway"
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def names(self) -> list[str]:
        """Names of the worker pods."""
        return sorted(pod["metadata"]["name"] for pod in self.workers())

    def images(self) -> dict[str, str]:
        """The image of every worker pod, by its name."""
        return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in self.workers()}

    def wait_names(self, *expected: str) -> list[str]:
        """The worker pods once their names start with exactly these."""

        def reached() -> list[str] | None:
            found = self.names()
            fits = len(found) == len(expected) and all(map(str.startswith, found, sorted(expected)))
            return found if fits else None

        try:
            return until(reached, f"worker pods {expected}", 30)
        except AssertionError as error:
            raise AssertionError(f"{error}; found {self.names()}") from error

    def make_ready(self) -> None:
        """Do what kubelets would: every pod of the deployment runs and is ready."""
        for pod in self.children("pods"):
            if "deletionTimestamp" not in pod["metadata"] and not is_running(pod):
                done = self._set_status(pod["metadata"]["name"], running(self.gateway.address))
                assert done.is_success or done.status_code == 404, done.text

    def set_status(self, pod: str, status: Manifest) -> None:
        """Replace parts of a pod's status."""
        done = self._set_status(pod, status)
        assert done.is_success, done.text

    def _set_status(self, pod: str, status: Manifest) -> httpx.Response:
        return self.rest.try_merge("pods", self.namespace.name, pod, {"status": status}, "status")

    def become_ready(self) -> None:
        """Play the kubelet until the deployment is Ready."""

        def reached() -> bool:
            self.make_ready()
            return self.condition("Ready").get("status") == "True"

        try:
            until(reached, f"{self.name} is Ready", 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.resource().get('status'), indent=1)}") from error

    def versions(self) -> dict[str, str]:
        """Resource version of the deployment and of everything that belongs to it, by kind and name."""
        objects = [("distservedeployments", self.resource())]
        objects += [(kind, each) for kind in CHILDREN for each in self.children(kind)]
        return {f"{kind}/{each['metadata']['name']}": each["metadata"]["resourceVersion"] for kind, each in objects}

    def delete(self, kind: str, *names: str) -> None:
        """Ask for the deletion of objects in its namespace."""
        for name in names:
            self.rest.delete(kind, self.namespace.name, name)


def is_running(pod: Manifest) -> bool:
    """Whether its status is of a pod that is ready."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", []))


def running(address: str) -> Manifest:
    """Status of a pod that is ready."""
    now = "2026-01-01T00:00:00Z"
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [container_status("distserve/worker:dev", {"running": {"startedAt": now}}, ready=True)],
    }


def crashed(message: str, restarts: int = 2) -> Manifest:
    """Status of a pod whose container ends again and again."""
    end = {"exitCode": 1, "reason": "Error", "message": message}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    container = container_status("distserve/worker:dev", waiting) | {
        "restartCount": restarts,
        "lastState": {"terminated": end},
    }
    return {"phase": "Running", "containerStatuses": [container]}


def container_status(image: str, state: Manifest, *, ready: bool = False) -> Manifest:
    """Status of a container in `state`."""
    entry = {"name": "worker", "image": image, "imageID": "", "restartCount": 0, "state": state}
    return entry | {"ready": ready, "started": ready}
