"""The API server goes away, watches break, the operator is killed: nothing is missed."""

from collections.abc import Callable
from functools import partial

import pytest
from distserve_testing.clusters import Namespace, until
from distserve_testing.operator_process import Fleet, OperatorProcess

from distserve_devcluster.cluster import ClusterSpec
from distserve_devcluster.running import set_component

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

Deploy = Callable[..., Fleet]


def has_children(fleet: Fleet, enough: int) -> bool:
    return len(fleet.children()) >= enough


def restart_api_server(spec: ClusterSpec, namespace: Namespace) -> None:
    set_component(spec.state, "kube-apiserver", "stop")
    until(lambda: namespace.try_kubectl("get", "--raw", "/readyz").returncode != 0, "the API server is away")
    set_component(spec.state, "kube-apiserver", "start")
    until(lambda: namespace.try_kubectl("get", "--raw", "/readyz").returncode == 0, "the API server answers")


def test_the_operator_lives_through_an_outage_of_the_api_server(
    operator: OperatorProcess, spec: ClusterSpec, deploy: Deploy
) -> None:
    """B19."""
    operator.start()
    chat = deploy()
    decode, _ = chat.wait_names("chat-decode", "chat-prefill")
    chat.become_ready()
    restart_api_server(spec, chat.namespace)
    chat.delete("pods", decode)
    until(lambda: len(chat.names()) == 2, "the operator has made the pod again", 60)
    assert operator.running.poll() is None
    assert operator.probe("/healthz") == 200
    chat.become_ready()


def test_a_pod_that_went_unseen_is_missed_after_all(
    operator: OperatorProcess, spec: ClusterSpec, deploy: Deploy
) -> None:
    """B19: the watch is broken while the pod goes, and the server has no history left when it comes back."""
    operator.start()
    chat = deploy()
    names = chat.wait_names("chat-decode", "chat-prefill")
    chat.become_ready()
    operator.freeze()
    chat.delete("pods", *names)
    restart_api_server(spec, chat.namespace)
    operator.thaw()
    until(lambda: len(chat.names()) == 2, "both pods have been made again", 90)
    chat.become_ready()


def test_an_operator_that_is_killed_again_and_again_gets_there(operator: OperatorProcess, deploy: Deploy) -> None:
    """B24."""
    chat = deploy(prefill=2, max_devices=3)
    for objects in (1, 4, 7):
        operator.start()
        until(partial(has_children, chat, objects), f"{objects} objects exist", 30)
        operator.kill()
    operator.start()
    chat.wait_names("chat-decode-0-0", "chat-prefill-0-0", "chat-prefill-1-0")
    chat.become_ready()


def test_its_probes_tell_when_it_waits_for_the_custom_resource(operator: OperatorProcess, namespace: Namespace) -> None:
    assert operator.probe("/readyz") is None
    operator.start()
    operator.wait_ready()
    assert operator.probe("/healthz") == 200
    assert operator.probe("/nothing") == 404
    assert operator.stop() == 0
    assert namespace.list("dsd") == []
