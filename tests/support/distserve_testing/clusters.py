"""Talks to a local cluster in tests: objects as dicts through kubectl, and waits on real conditions."""

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import psutil

from distserve_devcluster.cluster import Cluster

Manifest = dict[str, Any]
Found = TypeVar("Found")
POLL_SECONDS = 0.1


def until(ask: Callable[[], Found | None], what: str, timeout_seconds: float = 60) -> Found:
    """The first answer that is not None or False; the deadline only bounds a failing test."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        answer = ask()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_seconds:.0f} s: {what}")
        time.sleep(POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class Namespace:
    """kubectl in one namespace of a cluster."""

    cluster: Cluster
    name: str

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60) -> str:
        """Standard output; a failure carries standard error."""
        done = self.try_kubectl(*arguments, stdin=stdin, timeout_seconds=timeout_seconds)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def try_kubectl(
        self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """The finished command, whatever its exit status."""
        base = [str(self.cluster.kubectl), "--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.name]
        return subprocess.run(
            [*base, *arguments], input=stdin, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )

    def apply(self, *manifests: Manifest) -> None:
        """Apply objects."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    def get(self, kind: str, name: str) -> Manifest:
        """One object."""
        found: Manifest = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def list(self, kind: str) -> list[Manifest]:
        """All objects of a kind."""
        items: list[Manifest] = json.loads(self.kubectl("get", kind, "-o", "json"))["items"]
        return items

    def container_status(self, pod: str) -> Manifest:
        """The status of the pod's first container, empty before the kubelet has written one."""
        statuses = self.get("pod", pod).get("status", {}).get("containerStatuses", [{}])
        first: Manifest = statuses[0]
        return first

    def wait_ready(self, pod: str, timeout_seconds: float = 60) -> Manifest:
        """The pod once its condition Ready is true."""

        def ready() -> Manifest | None:
            found = self.get("pod", pod)
            conditions = {each["type"]: each["status"] for each in found["status"].get("conditions", [])}
            return found if conditions.get("Ready") == "True" else None

        return until(ready, f"pod {pod} is ready", timeout_seconds)

    def wait_ended(self, pod: str, timeout_seconds: float = 60) -> str:
        """The phase in which the pod ended."""

        def ended() -> str | None:
            phase: str = self.get("pod", pod)["status"]["phase"]
            return phase if phase in {"Succeeded", "Failed"} else None

        return until(ended, f"pod {pod} has ended", timeout_seconds)

    def run_script(self, pod: str, script: str, image: str, timeout_seconds: float = 60) -> str:
        """The log of a pod that runs a script to its end."""
        container = {"name": "main", "image": image, "command": ["python", "-c", script]}
        self.apply(make_pod(pod, container, restartPolicy="Never"))
        phase = self.wait_ended(pod, timeout_seconds)
        log = self.kubectl("logs", pod)
        assert phase == "Succeeded", log
        return log


def make_pod(name: str, *containers: Manifest, labels: dict[str, str] | None = None, **spec: object) -> Manifest:
    """A pod that ends fast when it is deleted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": list(containers), **spec},
    }


def processes_of(cluster: Cluster) -> list[psutil.Process]:
    """Every process of a cluster with its supervisor, in no order."""
    first = psutil.Process(next(each.pid for each in cluster.components if each.pid))
    ancestors = [first, *first.parents()]
    supervisor = next(each for each in ancestors if "supervise" in each.cmdline())
    return [supervisor, *supervisor.children(recursive=True)]


def survivors(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; psutil tells a reused id by its start time."""
    return [each for each in processes if _runs(each)]


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # gone between the two questions
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
