"""What the API server lets through, the operator understands, and the API server takes the pods that come of it."""

from typing import Any

import pytest
from distserve_testing.clusters import Namespace
from distserve_testing.deployments import SETTINGS, placed, resource
from distserve_testing.rest import Rest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from distserve_operator.manifests.children import desired_children
from distserve_operator.manifests.worker_pod import build_worker_pod
from distserve_operator.manifests.worker_template import worker_template

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PIECES = ["a", "B", "0", ".", "..", "/", "-", "_", "@", "$(A)", "%2e", "\\", "é", ":", "~"]
paths = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
uris = st.one_of(
    st.builds(
        "{}{}".format, st.sampled_from(["hf://", "hf://a/", "pvc://", "pvc://m/", "file:///", "file:///d/"]), paths
    ),
    st.builds("pvc://{}/x".format, paths),
)
numbers = st.one_of(
    st.sampled_from(["3", "0.5", "1.", "00", "67108864", "1e9", "2E9", "1e-3", "+1", "1_000"]), st.integers(0).map(str)
)
quantities = st.builds("{}{}".format, numbers, st.sampled_from(["", *"numkKMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]))
domains = st.one_of(paths, st.sampled_from(["example.com", "kubernetes.io", "requests.example.com", "x.kubernetes.io"]))
gpu_names = st.builds("{}/{}".format, domains, st.one_of(paths, st.sampled_from(["gpu", "g" * 64])))
counts = st.integers(1, 3)
tokens = st.integers(15, 1_000_001)
sizes = {"tp": counts, "pp": counts, "replicas": counts}
placements = st.one_of(
    st.fixed_dictionaries(
        {
            "prefill": st.fixed_dictionaries({}, optional=sizes | {"maxBatchTokens": tokens}),
            "decode": st.fixed_dictionaries({}, optional=sizes),
        }
    ),
    st.fixed_dictionaries(
        {"colocated": st.fixed_dictionaries({}, optional=sizes | {"maxBatchTokens": tokens, "chunkTokens": tokens})}
    ),
)
names = st.one_of(paths, st.sampled_from(["cache", "a.b", "A", "a..b", "a" * 253, "a" * 254]))
secrets = st.fixed_dictionaries({"name": names}, optional={"key": st.one_of(paths, st.just("token"))})
hubs = st.fixed_dictionaries({}, optional={"tokenSecret": secrets, "cacheClaim": names})
models = st.fixed_dictionaries(
    {"uri": uris},
    optional={
        "dtype": st.sampled_from(["FP32", "FP16", "BF16", "INT8"]),
        "servedName": paths,
        "maxModelLength": st.integers(15, 10_000_001),
    },
)
clusters = st.one_of(
    st.fixed_dictionaries(
        {"deviceType": st.just("CPU"), "coresPerDevice": st.integers(1, 1025), "maxDevices": st.just(100)},
        optional={"memoryPerDevice": quantities},
    ),
    st.fixed_dictionaries(
        {"deviceType": st.sampled_from(["A100-80GB", "H100-80GB", "H200", "L40S"]), "maxDevices": st.just(100)},
        optional={"memoryPerDevice": quantities, "resourceName": gpu_names},
    ),
)
gateways = st.fixed_dictionaries({}, optional={"replicas": st.integers(1, 101), "port": st.integers(0, 65536)})
PLAIN: dict[str, Any] = {
    key: value for key, value in resource("chat")["spec"].items() if key in {"model", "cluster", "placement", "gateway"}
}
# One part at a time is drawn from all that it may be: refusals would otherwise hide each other.
specs = st.one_of(
    models.map(lambda model: PLAIN | {"model": model}),
    hubs.map(lambda hub: PLAIN | {"model": {"uri": "hf://a/b", "hub": hub}}),
    st.booleans().map(lambda isolated: PLAIN | {"security": {"isolatePrefixes": isolated}}),
    clusters.map(lambda cluster: PLAIN | {"cluster": cluster}),
    placements.map(
        lambda placement: (
            PLAIN | {"cluster": PLAIN["cluster"] | {"maxDevices": 100}, "placement": {"type": "Manual", **placement}}
        )
    ),
    gateways.map(lambda gateway: PLAIN | {"gateway": gateway}),
)


@pytest.fixture
def accounts(namespace: Namespace, rest: Rest) -> Namespace:
    """A namespace with the service accounts that the pods name."""
    for account in ("chat-worker", "chat-gateway"):
        rest.create("serviceaccounts", namespace.name, {"metadata": {"name": account}})
    return namespace


@settings(
    max_examples=200,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(spec=specs)
def test_what_the_schema_accepts_can_be_served(accounts: Namespace, rest: Rest, spec: dict[str, Any]) -> None:
    """Neither `SpecInvalid` nor `PodRefused` can be the answer to a spec that the API server took."""
    kind = {"apiVersion": "distserve.io/v1alpha1", "kind": "DistServeDeployment"}
    where, strict = accounts.name, {"dryRun": "All", "fieldValidation": "Strict"}
    answer = rest.try_create(
        "distservedeployments", where, kind | {"metadata": {"name": "chat"}, "spec": spec}, **strict
    )
    event(f"{answer.status_code}")
    if answer.status_code == 422:
        return
    assert answer.status_code == 201, answer.text
    fleet = placed(answer.json())
    for role in fleet.placement.shapes:
        pod = build_worker_pod(fleet, worker_template(fleet, role, SETTINGS), 0, 0)
        rest.create("pods", where, pod, **strict)
    for child in desired_children(fleet, SETTINGS):
        rest.apply(f"{child.kind.lower()}s", where, dict(child.manifest), **strict)
