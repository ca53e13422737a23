"""Starts a local cluster, finds it again, and ends it with everything that runs in it."""

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distserve_devcluster.building import Say, build_programs
from distserve_devcluster.claiming import claim, clear, is_claimed
from distserve_devcluster.cluster import Cluster, ClusterSpec, Programs
from distserve_devcluster.controlling import ask
from distserve_devcluster.daemons import Daemon, spawn, start_time
from distserve_devcluster.errors import DevClusterError, LoggedError
from distserve_devcluster.images import Image
from distserve_devcluster.locations import StateFolder
from distserve_devcluster.locking import exclusive, is_held

START_TIMEOUT_SECONDS = 180
STOP_TIMEOUT_SECONDS = 30
POLL_SECONDS = 0.1


def quiet(_: str) -> None:
    """Report no progress."""


def up(spec: ClusterSpec, say: Say = quiet) -> Cluster:
    """Start the cluster, or find it running; it is ready when this returns.

    Raises:
        DevClusterError: it could not be built or started (nothing is left running then), or runs with other settings.
    """
    claim(spec.state)
    # Outside the lock: a first build takes longer than others would wait for it.
    built = None if is_held(spec.state.owner_lock) else build_programs(say)
    with exclusive(spec.state.change_lock, START_TIMEOUT_SECONDS):
        write_images(spec.state, spec.images)
        if is_held(spec.state.owner_lock):
            _require_same(spec)
            return _wait_until_ready(spec.state, read_programs(spec.state), process=None)
        programs = built or build_programs(say)
        write_programs(spec.state, programs)
        spec.models.mkdir(parents=True, exist_ok=True)
        say(f"starting the cluster {spec.name!r}")
        start = time.monotonic()
        cluster = _start(spec, programs)
        say(f"ready in {time.monotonic() - start:.1f} s at {cluster.api_server}")
        return cluster


def status(state: StateFolder) -> Cluster | None:
    """The running cluster of this folder, or None."""
    answer = ask(state, "status")
    return None if answer is None else Cluster.from_answer(answer, read_programs(state))


def down(state: StateFolder) -> bool:
    """End the cluster and remove its state, except its logs; False when none ran."""
    if not is_claimed(state):
        return False
    with exclusive(state.change_lock, STOP_TIMEOUT_SECONDS):
        ran = is_held(state.owner_lock)
        if ran:
            _stop(state)
        clear(state)
        return ran


def publish(state: StateFolder, service: str, port: int) -> int:
    """Forward 127.0.0.1:`port` (0: a free one) to NAMESPACE/SERVICE[:PORT]; returns the port.

    Raises:
        DevClusterError: no cluster runs, the service is misspelt, or the port is taken.
    """
    answer = _require(ask(state, "publish", service=service, port=port), state)
    ports = [each["port"] for each in answer["published"] if each["service"] == service]
    return port if port in ports else int(ports[-1])


def set_component(state: StateFolder, name: str, action: str) -> None:
    """`start` or `stop` one program of the cluster; a stopped one stays so until it is started.

    Raises:
        DevClusterError: no cluster runs, or it has no such component.
    """
    if action not in {"start", "stop"}:
        raise DevClusterError(f"action {action!r}: want start or stop")
    _require(ask(state, "start" if action == "start" else "stop", component=name), state)


def kill_container(state: StateFolder, namespace: str, pod: str, container: str | None, number: signal.Signals) -> int:
    """Send a signal to the first process of a container, from outside as the host sees it; returns its process id."""
    cluster = status(state)
    if cluster is None:
        raise DevClusterError(f"no cluster runs in {state.path}")
    try:
        found = cluster.container(namespace, pod, container)
    except LookupError as error:
        raise DevClusterError(str(error)) from error
    os.kill(found.pid, number)
    return found.pid


def write_images(state: StateFolder, images: Mapping[str, Image]) -> None:
    """Replace the list of known images; a running node reads it at its next look-up."""
    _replace(state.images, {name: image.to_json() for name, image in images.items()})


def write_programs(state: StateFolder, programs: Programs) -> None:
    """Keep which programs the cluster runs: a newer checkout must not change those of a running one."""
    _replace(state.programs, {key: str(path) for key, path in asdict(programs).items()})


def read_programs(state: StateFolder) -> Programs:
    """The programs that the cluster was started with."""
    return Programs(**{key: Path(path) for key, path in json.loads(state.programs.read_text()).items()})


def _replace(path: Path, value: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=2))
    temporary.replace(path)


def _require(answer: dict[str, Any] | None, state: StateFolder) -> dict[str, Any]:
    if answer is None:
        raise DevClusterError(f"no cluster runs in {state.path}; start one with `distserve dev up`")
    return answer


def _require_same(spec: ClusterSpec) -> None:
    running = json.loads(spec.state.spec.read_text())
    asked = {"gpus": spec.gpus, "nodes": spec.nodes, "modelsDir": str(spec.models.absolute())}
    different = [f"{key} {running[key]!r}, not {value!r}" for key, value in asked.items() if running[key] != value]
    if different:
        raise DevClusterError(f"cluster {spec.name!r} runs with {'; '.join(different)}: take it down first")


def _start(spec: ClusterSpec, programs: Programs) -> Cluster:
    for log in spec.state.logs.glob("*.log"):
        log.unlink()
    process = spawn(
        programs.devcluster, _arguments(spec, programs), spec.state.supervisor_log, ends_with_us=spec.ends_with_starter
    )
    try:
        return _wait_until_ready(spec.state, programs, process)
    except BaseException:
        process.end(STOP_TIMEOUT_SECONDS)
        raise


def _arguments(spec: ClusterSpec, programs: Programs) -> list[str]:
    options = {
        "name": spec.name,
        "state": spec.state.path.absolute(),
        "models": spec.models.absolute(),
        "nodes": spec.nodes,
        "gpus": spec.gpus,
        "gpu-product": spec.gpu_product,
        "end-with-input": str(spec.ends_with_starter).lower(),
    }
    held = [f"--hold={folder}" for folder in programs.folders]
    return ["supervise", *(f"--{key}={value}" for key, value in options.items()), *held]


def _wait_until_ready(state: StateFolder, programs: Programs, process: Daemon | None) -> Cluster:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if process is not None and process.has_ended():
            lines = state.supervisor_log.read_text().strip().splitlines()
            reason = lines[-1] if lines else "it ended without a message"
            raise LoggedError(f"the cluster did not start: {reason}", state.supervisor_log)
        answer = ask(state, "status")
        if answer is not None and answer["phase"] == "ready":
            return Cluster.from_answer(answer, programs)
        time.sleep(POLL_SECONDS)
    raise LoggedError(f"the cluster was not ready within {START_TIMEOUT_SECONDS} s", state.logs)


def _stop(state: StateFolder) -> None:
    owner = json.loads(state.owner_lock.read_text())
    with suppress(DevClusterError):  # if it does not answer it is killed below
        ask(state, "shutdown")
    if not _wait_until_free(state, STOP_TIMEOUT_SECONDS):
        if start_time(owner["pid"]) == owner["startTime"]:
            os.kill(owner["pid"], signal.SIGKILL)
        if not _wait_until_free(state, STOP_TIMEOUT_SECONDS):
            raise LoggedError("the cluster's supervisor does not end", state.supervisor_log)
    Daemon(owner["pid"]).reap(STOP_TIMEOUT_SECONDS)


def _wait_until_free(state: StateFolder, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while is_held(state.owner_lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
