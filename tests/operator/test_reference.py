"""docs/reference.md names everything that the operator says."""

import re

import pytest
from distserve_testing.deployments import ROOT, strict_schema

from distserve_operator.api.devices import GPU_PRODUCTS
from distserve_operator.manifests.metadata import MANAGED_BY
from distserve_proto import contract
from distserve_proto.contract import ExitReason

REFERENCE = (ROOT / "docs" / "reference.md").read_text()
SOURCES = ROOT / "operator" / "distserve_operator"
# Text in CamelCase that names no reason: kinds, parts of the API's own objects.
OTHERS = {
    "True",
    "False",
    "Unknown",
    "Failed",
    "Succeeded",
    "Error",
    "Event",
    "Normal",
    "Warning",
    "Reconcile",
    "Plan",
    "Deployment",
}
SPOKEN = [
    "conditions/*.py",
    "observed/problems.py",
    "plan/children.py",
    "reconciling/acting.py",
    "reconciling/happenings.py",
    "observed/recorded.py",
    "plan/refusals.py",
]


def test_every_condition_reason_and_event_is_listed() -> None:
    text = "\n".join(path.read_text() for pattern in SPOKEN for path in SOURCES.glob(pattern))
    spoken = set(re.findall(r'"([A-Z][a-zA-Z]+)"', text)) - OTHERS
    kubernetes = {"OOMKilled", "PodScheduled", "ServiceAccount", "ErrImagePull", "ImagePullBackOff"}
    kubernetes |= {"PodReadyToStartContainers", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
    unlisted = {reason for reason in spoken - kubernetes if f"`{reason}`" not in REFERENCE}
    assert not unlisted
    assert all(f"`{reason}`" in REFERENCE for reason in ExitReason)


def test_every_label_and_annotation_is_listed() -> None:
    text = "\n".join(path.read_text() for path in SOURCES.rglob("*.py"))
    names = set(re.findall(r'"(distserve\.io/[a-z-]+)"', text))
    names |= {value for name, value in vars(contract).items() if name.startswith("LABEL_")}
    assert {name for name in names if f"`{name}`" not in REFERENCE} <= {f"distserve.io/{MANAGED_BY}"}


@pytest.mark.parametrize("device_type", list(GPU_PRODUCTS))
def test_every_gpu_is_listed_with_its_nodes(device_type: str) -> None:
    (row,) = [line for line in REFERENCE.splitlines() if line.startswith(f"| `{device_type}` |")]
    assert all(f"`{product}`" in row for product in GPU_PRODUCTS[device_type])  # type: ignore[index]


def test_every_status_field_is_listed() -> None:
    fields = strict_schema()["properties"]["status"]["properties"]
    assert {field for field in fields if f"`{field}" not in REFERENCE} == set()
