"""A container is a process that sees what its pod says, and ends as Kubernetes says."""

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from distserve_testing.clusters import Manifest, Namespace, make_pod, until

from distserve_devcluster.cluster import ClusterSpec
from distserve_devcluster.running import kill_container, status
from distserve_operator.api.model import parse_model_uri
from distserve_operator.manifests.model_files import model_files
from distserve_operator.observed.problems import Problem, find_problem

pytestmark = pytest.mark.cluster


def shell(script: str, **fields: object) -> Manifest:
    return {"name": "main", "image": "test/shell:dev", "args": [script], **fields}


def test_environment_files_and_token_reach_the_process(namespace: Namespace) -> None:
    namespace.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"word": "blue", "file": "in"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"word": "hidden"}},
    )
    container = shell(
        "echo $WORD $SECRET $WHERE $POD_IP; cat /conf/file; echo; cat /labels/labels; echo; "
        "test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token; cat /deep/er/than/the/host",
        env=[
            {"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "word"}}},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "key", "key": "word"}}},
            {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        volumeMounts=[
            {"name": "conf", "mountPath": "/conf"},
            {"name": "labels", "mountPath": "/labels"},
            {"name": "conf", "mountPath": "/deep/er/than/the/host", "subPath": "file"},
        ],
    )
    volumes = [
        {"name": "conf", "configMap": {"name": "conf"}},
        {
            "name": "labels",
            "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
        },
    ]
    namespace.apply(make_pod("sees", container, labels={"colour": "red"}, volumes=volumes, restartPolicy="Never"))
    assert namespace.wait_ended("sees") == "Succeeded"
    first, *rest = namespace.kubectl("logs", "sees").splitlines()
    address = namespace.get("pod", "sees")["status"]["podIP"]
    assert first == f"blue hidden distserve-node-0 {address}"
    assert rest == ["in", 'colour="red"', "token", "in"]


def test_the_host_is_read_only_and_tmp_is_the_containers_own(namespace: Namespace, spec: ClusterSpec) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp") as theirs:
        _look_around(namespace, spec, theirs.name)


def _look_around(namespace: Namespace, spec: ClusterSpec, theirs: str) -> None:
    log = namespace.run_script(
        "alone",
        f"""
import os
for path in ("/usr/x", "/etc/x", "/x", {str(spec.models / "x")!r}):
    try:
        open(path, "w")
        print("wrote", path)
    except OSError:
        pass
open("/tmp/x", "w").write("fine")
open("/dev/shm/x", "w").write("fine")
open("/run/x", "w").write("fine")
print(os.path.exists({theirs!r}), os.path.exists({str(spec.state.path / "kubeconfig")!r}), os.getpid())
""",
        "test/python:dev",
    )
    assert log.strip() == "False False 1"


def test_memory_and_disk_volumes_are_shared_by_the_containers_of_a_pod(namespace: Namespace) -> None:
    mounts = [{"name": "disk", "mountPath": "/disk"}, {"name": "memory", "mountPath": "/memory"}]
    writer = shell("echo one > /disk/a; echo two > /memory/b; echo three > /dev/shm/c", volumeMounts=mounts)
    reader = shell(
        "while ! [ -s /dev/shm/c ]; do sleep 0.1; done; cat /disk/a /memory/b /dev/shm/c; df --output=size /memory",
        name="reader",
        volumeMounts=mounts,
    )
    volumes = [
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
    ]
    namespace.apply(make_pod("shares", writer, reader, volumes=volumes, restartPolicy="Never"))
    assert namespace.wait_ended("shares") == "Succeeded"
    log = namespace.kubectl("logs", "shares", "-c", "reader").split()
    assert log == ["one", "two", "three", "1K-blocks", "8192"]


def test_the_models_claim_is_mounted_read_only(namespace: Namespace) -> None:
    # The claim is in the namespace default, and so is this pod.
    default = Namespace(namespace.cluster, "default")
    mount = {"name": "models", "mountPath": "/models", "readOnly": False}
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
    script = "cat /models/weights.gguf; touch /models/x 2>/dev/null && echo wrote"
    name = f"models-{namespace.name}"
    default.apply(
        make_pod(name, shell(f"{script}; true", volumeMounts=[mount]), volumes=[volume], restartPolicy="Never")
    )
    try:
        assert default.wait_ended(name) == "Succeeded"
        assert default.kubectl("logs", name) == "some weights"
    finally:
        default.kubectl("delete", "pod", name, "--wait=false")


def test_a_crash_is_restarted_and_the_previous_log_is_kept(namespace: Namespace) -> None:
    """The second attempt stays: with a third, the kubelet throws the first one's log away."""
    second = "test -e /state/again && exec sleep 1000"
    first = "touch /state/again; echo attempt; echo why > /dev/termination-log; exit 7"
    container = shell(f"{second}; {first}", volumeMounts=[{"name": "state", "mountPath": "/state"}])
    namespace.apply(make_pod("crashes", container, volumes=[{"name": "state", "emptyDir": {}}]))
    state = until(lambda: namespace.container_status("crashes").get("lastState", {}).get("terminated"), "a restart")
    assert state["exitCode"] == 7
    assert state["message"] == "why\n"
    namespace.wait_ready("crashes")
    assert namespace.container_status("crashes")["restartCount"] == 1
    assert namespace.kubectl("logs", "crashes", "--previous") == "attempt\n"


def test_killing_the_first_process_leaves_no_child_and_the_container_is_restarted(
    namespace: Namespace, spec: ClusterSpec
) -> None:
    namespace.apply(make_pod("family", shell("sleep 1000 & sleep 1001 & setsid sleep 1002 & wait")))
    namespace.wait_ready("family")
    found = status(spec.state)
    assert found is not None
    first = psutil.Process(found.container(namespace.name, "family").pid)
    family = until(lambda: _family(first, 4), "all processes of the container run")
    kill_container(spec.state, namespace.name, "family", None, signal.SIGKILL)
    until(lambda: not [each for each in family if each.is_running()], "every process of the container is gone")
    until(lambda: namespace.container_status("family")["restartCount"] == 1, "the container is restarted")
    assert namespace.container_status("family")["lastState"]["terminated"]["exitCode"] == 128 + signal.SIGKILL


def _family(first: psutil.Process, size: int) -> list[psutil.Process] | None:
    family = [first, *first.children(recursive=True)]
    return family if len(family) >= size else None


def test_killing_the_shim_kills_the_container(namespace: Namespace, spec: ClusterSpec) -> None:
    namespace.apply(make_pod("shimless", shell("sleep 1000 & wait")))
    namespace.wait_ready("shimless")
    found = status(spec.state)
    assert found is not None
    first = psutil.Process(found.container(namespace.name, "shimless").pid)
    family = until(lambda: _family(first, 2), "both processes run")
    shim = first.parent()
    assert shim is not None
    os.kill(shim.pid, signal.SIGKILL)
    until(lambda: not [each for each in family if each.is_running()], "every process of the container is gone")
    until(lambda: namespace.container_status("shimless")["restartCount"] == 1, "the container is restarted")


def test_a_deleted_pod_may_finish_its_work(namespace: Namespace) -> None:
    script = "trap 'echo asked >> /dev/termination-log; sleep 0.5; echo done >> /dev/termination-log; exit 0' TERM;"
    container = shell(
        f"{script} while true; do sleep 0.1; done",
        lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "echo before > /dev/termination-log"]}}},
    )
    pod = make_pod("polite", container, terminationGracePeriodSeconds=20)
    pod["metadata"]["finalizers"] = ["example.com/look"]
    namespace.apply(pod)
    namespace.wait_ready("polite")
    namespace.kubectl("delete", "pod", "polite", "--wait=false")
    ended = until(
        lambda: namespace.container_status("polite").get("state", {}).get("terminated"), "the container ended"
    )
    assert ended["exitCode"] == 0
    assert ended["message"].split() == ["before", "asked", "done"]
    namespace.kubectl("patch", "pod", "polite", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')


def test_a_pod_that_does_not_listen_is_killed_at_the_end_of_its_grace(namespace: Namespace) -> None:
    namespace.apply(make_pod("deaf", shell("trap '' TERM; while true; do sleep 0.1; done")))
    namespace.wait_ready("deaf")
    namespace.kubectl("delete", "pod", "deaf")
    assert namespace.try_kubectl("get", "pod", "deaf").returncode != 0


def test_probes_gate_readiness_and_restart_what_hangs(
    namespace: Namespace, web_server: Callable[..., Manifest]
) -> None:
    gate = {"exec": {"command": ["test", "-e", "/dev/shm/open"]}, "periodSeconds": 1}
    alive = {"exec": {"command": ["test", "!", "-e", "/dev/shm/hung"]}, "periodSeconds": 1, "failureThreshold": 1}
    tcp = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
    namespace.apply(make_pod("probed", web_server(readinessProbe=gate, livenessProbe=alive, startupProbe=tcp)))
    until(lambda: namespace.container_status("probed").get("started"), "the startup probe passes")
    assert namespace.container_status("probed")["ready"] is False
    namespace.kubectl("exec", "probed", "--", "touch", "/dev/shm/open")
    namespace.wait_ready("probed")
    namespace.kubectl("exec", "probed", "--", "touch", "/dev/shm/hung")
    until(lambda: namespace.container_status("probed")["restartCount"] >= 1, "the liveness probe restarts it")


def test_a_grpc_probe_is_answered(namespace: Namespace) -> None:
    script = """
from concurrent import futures
import grpc
serving = b"\\x08\\x01"  # HealthCheckResponse{status: SERVING}
check = grpc.unary_unary_rpc_method_handler(lambda request, context: serving)
server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})])
server.add_insecure_port("0.0.0.0:9000")
server.start()
server.wait_for_termination()
"""
    probe = {"grpc": {"port": 9000}, "periodSeconds": 1}
    container = {
        "name": "main",
        "image": "test/python:dev",
        "command": ["python", "-c", script],
        "readinessProbe": probe,
    }
    namespace.apply(make_pod("health", container))
    namespace.wait_ready("health")


def test_init_containers_and_sidecars_run_in_order(namespace: Namespace) -> None:
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    init = shell("echo init >> /shared/order", name="first", volumeMounts=mounts)
    sidecar = shell(
        "echo sidecar >> /shared/order; while true; do sleep 0.1; done",
        name="side",
        volumeMounts=mounts,
        restartPolicy="Always",
        startupProbe={"exec": {"command": ["grep", "-q", "sidecar", "/shared/order"]}, "periodSeconds": 1},
    )
    main = shell("cat /shared/order", volumeMounts=mounts)
    volumes = [{"name": "shared", "emptyDir": {}}]
    pod = make_pod("ordered", main, initContainers=[init, sidecar], volumes=volumes, restartPolicy="Never")
    namespace.apply(pod)
    assert namespace.wait_ended("ordered") == "Succeeded"
    assert namespace.kubectl("logs", "ordered", "-c", "main").split() == ["init", "sidecar"]


def test_exec_carries_input_output_and_the_exit_code(namespace: Namespace) -> None:
    namespace.apply(make_pod("target", shell("sleep 1000", env=[{"name": "COLOUR", "value": "green"}])))
    namespace.wait_ready("target")
    assert namespace.kubectl("exec", "-i", "target", "--", "cat", stdin="some words") == "some words"
    done = namespace.try_kubectl("exec", "target", "--", "sh", "-c", "echo $COLOUR $$; echo wrong >&2; exit 3")
    assert done.returncode == 3
    assert done.stdout.split()[0] == "green"
    assert done.stderr.startswith("wrong")
    missing = namespace.try_kubectl("exec", "target", "--", "no-such-program")
    assert missing.returncode == 126
    assert "no-such-program" in missing.stderr


def test_a_program_that_does_not_exist_is_a_start_error(namespace: Namespace) -> None:
    container = {"name": "main", "image": "test/python:dev", "command": ["no-such-program"]}
    namespace.apply(make_pod("missing", container, restartPolicy="Never"))
    assert namespace.wait_ended("missing") == "Failed"
    ended = namespace.container_status("missing")["state"]["terminated"]
    assert ended["reason"] == "StartError"
    assert "no-such-program" in ended["message"]


def test_a_model_in_a_folder_that_is_missing_has_a_reason_with_its_path(namespace: Namespace) -> None:
    """As the operator mounts a `file://` model, and as it reads the pod."""
    files = model_files(parse_model_uri("file:///no/such/folder/model.gguf"))
    container = {"name": "main", "image": "test/shell:dev", "args": ["sleep 1000"], "volumeMounts": files.mounts}
    namespace.apply(make_pod("lost", container, volumes=files.volumes))

    def problem() -> Problem | None:
        found = find_problem(namespace.get("pod", "lost"))
        return None if found is None or found.reason == "Starting" else found

    found = until(problem, "the pod says why it cannot start")
    assert found.reason in {"RunContainerError", "Crashed"}
    assert "/no/such/folder" in found.message


def test_gpus_are_handed_out_without_overlap_and_never_twice(namespace: Namespace) -> None:
    limits = {"limits": {"nvidia.com/gpu": "2"}}
    for name in ("left", "right"):
        namespace.apply(make_pod(name, shell("echo $NVIDIA_VISIBLE_DEVICES; sleep 1000", resources=limits)))
        namespace.wait_ready(name)
    given = [until(lambda n=name: namespace.kubectl("logs", n).strip(), "it speaks") for name in ("left", "right")]  # type: ignore[misc]
    assert sorted(",".join(given).split(",")) == ["0", "1", "2", "3"]
    namespace.apply(make_pod("third", shell("true", resources=limits)))
    pending = until(lambda: _unschedulable(namespace, "third"), "the third pod finds no place")
    assert "Insufficient nvidia.com/gpu" in pending


def _unschedulable(namespace: Namespace, pod: str) -> str | None:
    conditions = namespace.get("pod", pod)["status"].get("conditions", [])
    return next((each["message"] for each in conditions if each.get("reason") == "Unschedulable"), None)


def test_a_volume_at_tmp_does_not_hide_what_an_image_needs_below_it(namespace: Namespace, models: Path) -> None:
    script = f"cat {models}/weights.gguf && echo mine > /tmp/file && cat /tmp/file"
    mount = {"name": "tmp", "mountPath": "/tmp"}
    container = {"name": "main", "image": "test/paths:dev", "args": [script], "volumeMounts": [mount]}
    volume = {"name": "tmp", "emptyDir": {}}
    namespace.apply(make_pod("covered", container, restartPolicy="Never", volumes=[volume]))
    assert namespace.wait_ended("covered") == "Succeeded", namespace.kubectl("logs", "covered")
    assert namespace.kubectl("logs", "covered").split("\n")[:1] == ["some weightsmine"]
