"""A pod of the API as the planner sees it."""

from typing import Any

import pytest
from distserve_testing.deployments import SETTINGS, deployment

from distserve_operator.manifests.worker_pod import build_worker_pod
from distserve_operator.manifests.worker_template import worker_template
from distserve_operator.observed.pods import parse_pod
from distserve_proto.contract import Role


def pod(status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    fleet = deployment()
    body = build_worker_pod(fleet, worker_template(fleet, Role.PREFILL, SETTINGS), instance=1, attempt=2)
    body["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"} | metadata
    return body | {"status": status or {"phase": "Pending"}}


READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}]


def test_a_pod_that_was_made_is_recognised() -> None:
    found = parse_pod(pod({"phase": "Running", "conditions": READY}))
    assert (found.role, found.instance, found.attempt, found.devices) == ("prefill", 1, 2, 1)
    assert found.template_hash == worker_template(deployment(), Role.PREFILL, SETTINGS).hash
    assert found.source == SETTINGS.worker
    assert found.labelled
    assert found.ready
    assert found.alive


@pytest.mark.parametrize(("started", "expected"), [([], False), ([True], True), ([True, False], False)])
def test_a_pod_has_started_when_all_its_startup_probes_have_passed(started: list[bool], expected: bool) -> None:
    containers = [{"name": str(i), "started": each} for i, each in enumerate(started)]
    assert parse_pod(pod({"phase": "Running", "containerStatuses": containers})).started is expected


@pytest.mark.parametrize(
    "body",
    [
        pod({"phase": "Running", "conditions": READY}, deletionTimestamp="2026-01-01T00:05:00Z"),
        pod({"phase": "Failed", "conditions": READY}),
        pod({"phase": "Succeeded", "conditions": READY}),
    ],
)
def test_a_pod_that_ends_or_has_ended_is_not_ready(body: dict[str, Any]) -> None:
    """B18."""
    found = parse_pod(body)
    assert not found.ready
    assert not found.alive


def test_an_evicted_pod_counts_from_its_last_change() -> None:
    found = parse_pod(pod({"phase": "Failed", "reason": "Evicted", "conditions": READY}))
    assert found.ended_at is not None
    assert (found.ended_at - found.created).total_seconds() == 60


def test_foreign_labels_are_noticed_and_change_no_identity() -> None:
    """B31."""
    body = pod()
    body["metadata"]["labels"]["distserve.io/role"] = "decode"
    found = parse_pod(body)
    assert not found.labelled
    assert found.role == "prefill"


def test_a_pod_with_another_name_has_no_identity() -> None:
    found = parse_pod(pod(name="something", annotations={"distserve.io/devices": "many"}))
    assert found.identity is None
    assert found.devices == 1
