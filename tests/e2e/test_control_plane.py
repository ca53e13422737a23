"""The API server goes away for twenty seconds, and resources that cannot work say so."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from distserve_testing.clusters import Manifest, Namespace, until
from distserve_testing.deployed import Deployed, Reach, sample

from distserve_devcluster.cluster import Cluster, ClusterSpec
from distserve_devcluster.running import set_component

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "docs/samples/smollm2.yaml"
MODEL = "smollm2-135m-instruct"
OUTAGE_SECONDS = 20


async def test_streams_go_on_while_the_api_server_is_away(deployed: Deployed, spec: ClusterSpec) -> None:
    """B19: the gateway keeps its workers through the outage, and sees a pod that was replaced after it."""
    body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    async with httpx.AsyncClient(base_url=deployed.base_url, timeout=10) as client:
        expected = (await client.post("/v1/completions", json=body)).json()["choices"][0]["text"]
        answered = 0
        await asyncio.to_thread(set_component, spec.state, "kube-apiserver", "stop")
        try:
            end = time.monotonic() + OUTAGE_SECONDS
            while time.monotonic() < end:
                response = await client.post("/v1/completions", json=body)
                assert response.json()["choices"][0]["text"] == expected
                answered += 1
        finally:
            await asyncio.to_thread(set_component, spec.state, "kube-apiserver", "start")
        assert answered, "no request was sent during the outage"
        namespace = deployed.namespace
        await asyncio.to_thread(
            until, lambda: namespace.try_kubectl("get", "--raw", "/readyz").returncode == 0, "the API server answers"
        )
        lost = await asyncio.to_thread(deployed.only_pod, "prefill")
        namespace.kubectl("delete", "pod", lost, "--wait=false")
        await asyncio.to_thread(
            until, lambda: bool(deployed.pods("prefill")), "the operator made another prefill pod", 180
        )
        await asyncio.to_thread(namespace.wait_ready, deployed.only_pod("prefill"), 180)
        await asyncio.to_thread(deployed.wait_condition, "Ready", "True")
        await asyncio.to_thread(deployed.wait_serving)
        assert (await client.post("/v1/completions", json=body)).json()["choices"][0]["text"] == expected


def test_an_unknown_model_file_is_named_in_a_condition(cluster: Cluster, reach: Reach) -> None:
    manifest = sample(SAMPLE, "lost", uri="pvc://models/no-such-file.gguf")
    with applied(cluster, reach, manifest) as deployed:
        for kind in ("PrefillReady", "DecodeReady"):
            found = deployed.wait_reason(kind, "ModelNotFound")
            assert "no-such-file.gguf" in found["message"]
        assert deployed.condition("Ready")["status"] == "False"


def test_a_folder_that_is_missing_on_the_node_is_named_in_a_condition(cluster: Cluster) -> None:
    """Some container runtimes make it, so that the worker misses the file; others refuse the container."""
    manifest = sample(SAMPLE, "lost-folder", uri="file:///tmp/no/such/folder/model.gguf")
    namespace = Namespace(cluster, "default")
    namespace.apply(manifest)
    try:
        deployed = Deployed(namespace, None, "lost-folder", "")
        for kind in ("PrefillReady", "DecodeReady", "GatewayReady"):
            found = deployed.wait_message(kind, "/tmp/no/such/folder")
            assert found["reason"] in {"RunContainerError", "CreateContainerError", "Crashed", "ModelNotFound"}
    finally:
        namespace.kubectl("delete", "distservedeployment", "lost-folder")


def test_without_a_usable_pair_the_endpoint_says_why_it_cannot_serve(cluster: Cluster, reach: Reach) -> None:
    """B1, B17: the gateway is there, lists no model and answers 503."""
    manifest = sample(SAMPLE, "huge")
    manifest["spec"]["cluster"]["memoryPerDevice"] = "1000Ti"
    with applied(cluster, reach, manifest) as deployed:
        deployed.wait_reason("PrefillReady", "Unschedulable")
        until(lambda: answers(deployed), "its gateway answers", 120)
        assert httpx.get(f"{deployed.base_url}/v1/models").json() == {"object": "list", "data": []}
        body = {"model": MODEL, "prompt": "x"}
        refused = httpx.post(f"{deployed.base_url}/v1/completions", json=body)
        assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert "0 prefill and 0 decode" in refused.json()["error"]["message"]
        assert int(refused.headers["Retry-After"]) > 0
        assert deployed.condition("Ready")["status"] == "False"


@contextmanager
def applied(cluster: Cluster, reach: Reach, manifest: Manifest) -> Iterator[Deployed]:
    """A deployment that is deleted again, with all that was made for it."""
    namespace, name = Namespace(cluster, "default"), str(manifest["metadata"]["name"])
    namespace.apply(manifest)
    try:
        deployed = reach(name)
        yield deployed
    finally:
        namespace.kubectl("delete", "distservedeployment", name)
    until(lambda: not deployed.pods("prefill") and not deployed.pods("gateway"), f"nothing of {name} is left", 120)


def answers(deployed: Deployed) -> bool:
    """Whether the gateway can be reached."""
    try:
        return httpx.get(f"{deployed.base_url}/healthz", timeout=5).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("model", "uri"), "s3://bucket/model", "spec.model.uri"),
        (("model", "dtype"), "INT3", "spec.model.dtype"),
        (("cluster", "maxDevices"), 0, "spec.cluster.maxDevices"),
        (("placement", "prefill"), {"replicas": -1}, "spec.placement.prefill.replicas"),
        (("placement", "decode"), {"replicas": 9}, "maxDevices"),
        (("placement", "type"), "Magic", "spec.placement.type"),
    ],
)
def test_a_malformed_resource_is_refused_with_its_field_named(
    cluster: Cluster, path: tuple[str, str], value: object, named: str
) -> None:
    manifest = sample(SAMPLE, "malformed")
    manifest["spec"][path[0]][path[1]] = value
    refused = Namespace(cluster, "default").try_kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    assert refused.returncode != 0
    assert named in refused.stderr


def test_an_unknown_field_is_refused_with_its_name(cluster: Cluster) -> None:
    manifest = sample(SAMPLE, "malformed", servedNam="x")
    refused = Namespace(cluster, "default").try_kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    assert refused.returncode != 0
    assert 'unknown field "spec.model.servedNam"' in refused.stderr
