"""Which pods are workers that can be sent requests."""

from typing import Any

import pytest

from distserve_worker.gateway.discovery.pods import PodView, selector, target
from distserve_worker.gateway.workers.attaching import Target


def pod(name: str = "chat-prefill-0", version: str = "5", **changes: Any) -> dict[str, Any]:
    """A pod that can be sent requests, with changes to its metadata, status or labels."""
    labels = {"distserve.io/role": "prefill", "distserve.io/segment": "0"} | changes.pop("labels", {})
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": version, "labels": labels}
    status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
    status |= {key: changes.pop(key) for key in list(changes) if key in status}
    return {"metadata": metadata | changes, "status": status}


def test_a_running_ready_pod_is_a_target_on_the_declared_port() -> None:
    """B21."""
    assert target(pod()) == Target("chat-prefill-0", "10.0.0.7:9000", "uid-chat-prefill-0")


def test_an_ipv6_pod_is_addressed_with_brackets() -> None:
    """B16."""
    found = target(pod(podIP="fd00::7"))
    assert found is not None
    assert found.address == "[fd00::7]:9000"


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "Failed"},
        {"phase": "Pending"},
        {"podIP": None},
        {"conditions": None},
        {"conditions": [{"type": "Ready", "status": "False"}]},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"labels": {"distserve.io/segment": "1"}},
    ],
)
def test_no_new_work_goes_to_a_pod_that_is_not_ready_or_leaves_or_is_not_first(changes: dict[str, Any]) -> None:
    """B18 and B21."""
    assert target(pod(**changes)) is None


def test_only_worker_pods_of_the_deployment_are_selected() -> None:
    """B20."""
    assert selector("chat") == "distserve.io/deployment=chat,distserve.io/role in (prefill,decode,colocated)"


def test_a_list_replaces_everything_known_before() -> None:
    """B19: a worker that went away while the watch was down is gone after the re-list."""
    view = PodView.listed([pod("a"), pod("b", phase="Failed")], "7")
    assert (list(view.targets), view.version) == (["a"], "7")


def test_events_change_one_pod_each() -> None:
    """B18."""
    view = PodView.listed([pod("a")], "1")
    added = view.after("ADDED", pod("b", "2"))
    unready = added.after("MODIFIED", pod("a", "3", conditions=[]))
    deleted = unready.after("DELETED", pod("b", "4"))
    assert [list(known.targets) for known in (added, unready, deleted)] == [["a", "b"], ["b"], []]
    assert deleted.version == "4"


def test_a_bookmark_moves_only_the_version() -> None:
    view = PodView.listed([pod("a")], "1")
    after = view.after("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    assert (after.targets, after.version) == (view.targets, "9")


def test_a_recreated_pod_is_another_target() -> None:
    """B8."""
    view = PodView.listed([pod("a")], "1")
    reborn = view.after("MODIFIED", pod("a", "2", uid="other"))
    assert reborn.targets["a"] != view.targets["a"]
