"""The operator as a process against a real API server: from create to delete, through faults and edits."""

from collections.abc import Callable

import pytest
from distserve_testing.clusters import Namespace, until
from distserve_testing.operator_process import Fleet, OperatorProcess, crashed
from distserve_testing.played_gateway import NO_PAIR, PlayedGateway
from distserve_testing.rest import Rest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

Deploy = Callable[..., Fleet]


def test_a_deployment_gets_ready_with_its_roles_and_gateway(operator: OperatorProcess, deploy: Deploy) -> None:
    """B17, B30."""
    operator.start()
    chat = deploy(prefill=2, max_devices=4)
    chat.wait_names("chat-decode-0-0-", "chat-prefill-0-0-", "chat-prefill-1-0-")
    waiting = chat.wait_condition("Ready", "False")
    assert waiting["message"]
    chat.become_ready()
    status = chat.resource()["status"]
    assert status["observedGeneration"] == 1
    assert status["plan"] == {"shape": "2xTP1 -> 1xTP1", "devices": 3}
    assert status["prefill"] == {"replicas": 2, "ready": 2, "updated": 2}
    assert status["endpoint"] == f"http://chat.{chat.namespace.name}.svc:8000/v1"
    shown = chat.namespace.kubectl("get", "dsd")
    columns = ["NAME", "MODEL", "SHAPE", "DEVICES", "GOODPUT/DEVICE", "ATTAINMENT", "READY", "AGE"]
    assert shown.splitlines()[0].split() == columns
    chat.wait_told("PodCreated")
    chat.wait_told("Ready")


def test_a_deployment_is_ready_only_while_its_gateway_finds_a_usable_pair(
    operator: OperatorProcess, gateway: PlayedGateway, deploy: Deploy
) -> None:
    """B17: seen again by the periodic resync, as nothing happens in the cluster."""
    gateway.refusal = NO_PAIR
    operator.start()
    chat = deploy()
    chat.wait_names("chat-decode", "chat-prefill")

    def refused() -> bool:
        chat.make_ready()
        return chat.condition("GatewayReady").get("reason") == "NoUsablePair"

    until(refused, "the gateway says why it cannot serve", 30)
    assert NO_PAIR in chat.wait_condition("Ready", "False", "NoUsablePair")["message"]
    assert chat.condition("PrefillReady")["status"] == chat.condition("DecodeReady")["status"] == "True"
    gateway.refusal = None
    chat.wait_condition("Ready", "True")
    gateway.refusal = NO_PAIR
    chat.wait_condition("Ready", "False", "NoUsablePair")


def test_a_ready_deployment_is_left_alone_by_a_new_operator(operator: OperatorProcess, deploy: Deploy) -> None:
    """B26: an upgrade of the operator writes nothing."""
    operator.start()
    chat = deploy()
    chat.wait_names("chat-decode", "chat-prefill")
    chat.become_ready()
    assert operator.stop() == 0
    before = chat.versions()
    operator.start()
    operator.wait_ready()
    # Its answer to a change that it must react to shows that it has looked at everything before.
    deploy(gateway={"replicas": 1, "port": 9999})
    until(lambda: ":9999/" in chat.resource()["status"]["endpoint"], "the new port is applied")
    after = chat.versions()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"distservedeployments/chat", "services/chat"}


def test_nothing_is_left_of_a_deleted_deployment_even_without_the_operator(
    operator: OperatorProcess, deploy: Deploy
) -> None:
    """B24: no finalizer, no orphan."""
    operator.start()
    chat = deploy()
    chat.wait_names("chat-decode", "chat-prefill")
    chat.become_ready()
    assert "finalizers" not in chat.resource()["metadata"]
    assert "annotations" not in chat.resource()["metadata"]
    operator.kill()
    chat.namespace.kubectl("delete", "dsd", "chat", "--timeout=20s")
    until(lambda: not chat.children(), "all children are gone", 30)


def test_a_deployment_deleted_and_made_again_is_complete(operator: OperatorProcess, rest: Rest, deploy: Deploy) -> None:
    """B24: the objects of the first one are not mistaken for those of the second."""
    operator.start()
    chat = deploy()
    first = chat.wait_names("chat-decode", "chat-prefill")
    uid = chat.resource()["metadata"]["uid"]
    chat.delete("distservedeployments", "chat")
    until(lambda: rest.find("distservedeployments", chat.namespace.name, "chat") is None, "it is gone", 30)
    deploy()

    def owned_anew() -> bool:
        owners = {o["uid"] for pod in chat.workers() for o in pod["metadata"]["ownerReferences"]}
        return len(chat.workers()) == 2 and uid not in owners

    until(owned_anew, "the second deployment has its own pods", 60)
    assert chat.names() == first
    chat.become_ready()


def test_an_evicted_pod_is_replaced(operator: OperatorProcess, deploy: Deploy) -> None:
    """B29."""
    operator.start()
    chat = deploy()
    decode, prefill = chat.wait_names("chat-decode", "chat-prefill")
    chat.become_ready()
    chat.set_status(prefill, {"phase": "Failed", "reason": "Evicted", "message": "low on memory"})
    replaced = f"{prefill.removesuffix('-0')}-1"
    assert chat.wait_names(decode, replaced) == [decode, replaced]
    chat.become_ready()


def test_a_bad_image_reaches_only_new_pods_and_the_next_one_replaces_those(
    operator: OperatorProcess, deploy: Deploy
) -> None:
    """B25, B26."""
    operator.start()
    chat = deploy(prefill=2, max_devices=4)
    decode, kept, bad = chat.wait_names("chat-decode", "chat-prefill-0", "chat-prefill-1")
    chat.become_ready()
    before = chat.versions()
    operator.stop()
    operator.start(worker_image="distserve/worker:bad", gateway_image="distserve/gateway:bad")
    chat.delete("pods", bad)
    until(lambda: chat.images().get(bad) == "distserve/worker:bad", "the deleted pod is made again", 30)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    container = {"name": "worker", "image": "distserve/worker:bad", "imageID": "", "ready": False, "restartCount": 0}
    chat.set_status(bad, {"containerStatuses": [container | {"state": waiting}]})
    broken = chat.wait_condition("PrefillReady", "False", "ImagePullFailed")
    assert "distserve/worker:bad" in broken["message"]
    operator.stop()
    operator.start(worker_image="distserve/worker:good")
    chat.wait_names(decode, kept, f"{bad.removesuffix('-0')}-1")
    chat.become_ready()
    assert sorted(chat.images().values()) == ["distserve/worker:dev", "distserve/worker:dev", "distserve/worker:good"]
    after = chat.versions()
    untouched = (f"pods/{decode}", f"pods/{kept}", "services/chat")
    assert {name: after[name] for name in untouched} == {name: before[name] for name in untouched}
    (gateway,) = chat.children("deployments")
    assert gateway["spec"]["template"]["spec"]["containers"][0]["image"] == "distserve/gateway:dev"


def test_a_workers_own_reason_becomes_the_conditions(operator: OperatorProcess, deploy: Deploy) -> None:
    operator.start()
    chat = deploy()
    _, prefill = chat.wait_names("chat-decode", "chat-prefill")
    chat.set_status(prefill, crashed("ModelNotFound: /models/smollm2.gguf: no such file or folder"))
    for kind, status in (("PrefillReady", "False"), ("Ready", "False"), ("Stalled", "True")):
        found = chat.wait_condition(kind, status, "ModelNotFound")
        assert "/models/smollm2.gguf" in found["message"]
    chat.wait_told("ModelNotFound")


def test_foreign_objects_are_left_alone_and_ours_are_corrected(
    operator: OperatorProcess, rest: Rest, deploy: Deploy
) -> None:
    """B31."""
    operator.start()
    chat = deploy()
    names = chat.wait_names("chat-decode", "chat-prefill")
    chat.become_ready()
    where = chat.namespace.name
    labels = {"distserve.io/deployment": "chat", "distserve.io/role": "prefill"}
    stranger = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    rest.apply("pods", where, stranger)
    theirs = {"metadata": {"labels": {"their.org/label": "x"}}, "spec": {"selector": {"distserve.io/role": "decode"}}}
    rest.merge("services", where, "chat", theirs)
    wrong = {"distserve.io/deployment": None, "distserve.io/role": "gateway"}
    rest.merge("pods", where, names[0], {"metadata": {"labels": wrong}})

    def corrected() -> bool:
        service = rest.get("services", where, "chat")
        pod = rest.get("pods", where, names[0])["metadata"]["labels"]
        ours = {"distserve.io/deployment": "chat", "distserve.io/role": "decode"}
        selector: dict[str, str] = service["spec"]["selector"]
        return selector["distserve.io/role"] == "gateway" and ours.items() <= pod.items()

    until(corrected, "our fields are as they were", 30)
    assert rest.get("services", where, "chat")["metadata"]["labels"]["their.org/label"] == "x"
    assert chat.names() == sorted([*names, "stranger"])


def test_a_name_that_is_taken_is_named_and_never_touched(
    operator: OperatorProcess, namespace: Namespace, rest: Rest, deploy: Deploy
) -> None:
    """B31."""
    ports = [{"name": "web", "port": 80}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat"}, "spec": {"ports": ports}}
    before = rest.apply("services", namespace.name, service)
    operator.start()
    chat = deploy()
    stalled = chat.wait_condition("Stalled", "True", "NameConflict")
    assert "Service chat " in stalled["message"]
    assert rest.get("services", namespace.name, "chat") == before
    rest.delete("services", namespace.name, "chat")
    chat.wait_names("chat-decode", "chat-prefill")
    chat.become_ready()


def test_a_pod_that_cannot_be_made_says_why(
    operator: OperatorProcess, namespace: Namespace, rest: Rest, deploy: Deploy
) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    where = namespace.name
    rest.apply("resourcequotas", where, quota)
    until(lambda: rest.get("resourcequotas", where, "none").get("status", {}).get("hard"), "the quota holds")
    operator.start()
    chat = deploy()
    refused = chat.wait_condition("PrefillReady", "False", "PodRefused")
    assert "exceeded quota: none" in refused["message"]
    refused = chat.wait_condition("GatewayReady", "False", "PodRefused")
    assert "exceeded quota: none" in refused["message"]
    rest.delete("resourcequotas", where, "none")
    chat.wait_names("chat-decode", "chat-prefill")


@pytest.mark.parametrize("name", ["7b.chat", "a" * 200])
def test_awkward_names_work(operator: OperatorProcess, rest: Rest, deploy: Deploy, name: str) -> None:
    """B32: the API server takes every object that is made for them."""
    operator.start()
    fleet = deploy(name)
    until(lambda: fleet.resource().get("status", {}).get("endpoint"), "it has an endpoint", 30)
    namespace = fleet.namespace.name
    until(lambda: len(rest.list("pods", namespace)) == 3, "workers and gateway have pods", 30)
    assert not [c for c in fleet.resource()["status"]["conditions"] if c["reason"] in {"PodRefused", "ObjectRefused"}]


def played(fleet: Fleet) -> list[str]:
    """Its worker pods, after the kubelet has done its part."""
    fleet.make_ready()
    return fleet.names()


def test_a_fleet_becomes_colocated_and_back_and_serves_all_the_while(operator: OperatorProcess, deploy: Deploy) -> None:
    """B28, B30: also when the operator dies in between."""
    operator.start()
    chat = deploy(max_devices=8)
    pair = chat.wait_names("chat-decode-0-", "chat-prefill-0-")
    chat.become_ready()
    deploy(colocated={"tp": 2, "chunkTokens": 256}, max_devices=8)
    both = chat.wait_names("chat-colocated-0-", "chat-decode-0-", "chat-prefill-0-")
    assert set(pair) < set(both), "the pair serves until the new instance does"
    assert chat.wait_condition("PrefillReady", "False")["reason"] == "ScalingDown"
    operator.kill()
    operator.start()
    new = next(name for name in both if name not in pair)
    until(lambda: played(chat) == [new], "the pair has gone", 30)
    chat.become_ready()
    status = chat.resource()["status"]
    assert status["plan"] == {"shape": "1xTP2 colocated, chunks of 256", "devices": 2}
    assert status["colocated"] == {"replicas": 1, "ready": 1, "updated": 1}
    assert not {"prefill", "decode"} & status.keys()
    assert not {"PrefillReady", "DecodeReady"} & {condition["type"] for condition in status["conditions"]}
    assert "1xTP2 colocated" in chat.namespace.kubectl("get", "dsd")
    deploy(max_devices=8)
    until(lambda: played(chat) == pair, "the pair is back and the other has gone", 30)
    chat.become_ready()
    assert "colocated" not in chat.resource()["status"]


def test_a_shape_that_the_model_cannot_be_cut_into_is_refused_before_any_pod(
    operator: OperatorProcess, deploy: Deploy
) -> None:
    """B35."""
    operator.start()
    chat = deploy(uri="pvc://models/smollm2-135m-instruct.gguf", colocated={"tp": 2}, max_devices=8)
    refused = chat.wait_condition("PlacementReady", "False", "UnsupportedShape")
    assert "the 9 heads of SmolLM2-135M cannot be shared out to 2 devices; tp can be 1, 3" in refused["message"]
    assert chat.condition("ColocatedReady")["reason"] == "NotPlaced"
    chat.wait_condition("Stalled", "True", "UnsupportedShape")
    assert chat.children() == []


def test_an_instance_larger_than_any_node_is_refused_and_what_serves_goes_on(
    operator: OperatorProcess, deploy: Deploy
) -> None:
    """B35."""
    operator.start()
    chat = deploy(max_devices=8)
    pair = chat.wait_names("chat-decode-0-", "chat-prefill-0-")
    chat.become_ready()
    deploy(colocated={"tp": 32, "pp": 32}, max_devices=2000)
    refused = chat.wait_condition("PlacementReady", "False", "NotEnoughDevices")
    assert "placement.colocated takes 1024 devices (tp 32 x pp 32), but no CPU node has more than" in refused["message"]
    assert "1xTP1 -> 1xTP1 keeps serving" in refused["message"]
    assert chat.names() == pair
