"""Fleets of other shapes than the sample's: several ranks in a pod, both phases in one instance."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from distserve_testing.clusters import Manifest, Namespace
from distserve_testing.deployed import Deployed, Reach
from distserve_testing.reference import require_greedy

from distserve_devcluster.cluster import Cluster

if TYPE_CHECKING:
    import transformers

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
SAMPLES = Path(__file__).parents[2] / "docs/samples"
MODEL = "smollm2-135m-instruct"
PROMPTS = [
    [1 + (7919 * (position + 1) * (length + 3)) % 49_000 for position in range(length)] for length in (1, 17, 300)
]


@contextmanager
def applied(cluster: Cluster, reach: Reach, manifest: Manifest) -> Iterator[Deployed]:
    """The deployment once it is Ready; it is deleted in the end."""
    default = Namespace(cluster, "default")
    default.apply(manifest)
    try:
        deployed = reach(manifest["metadata"]["name"])
        deployed.wait_condition("Ready", "True", 400)
        deployed.wait_serving()
        yield deployed
    finally:
        default.kubectl("delete", "dsd", manifest["metadata"]["name"], "--timeout=120s")


def answers(deployed: Deployed, prompt: list[int]) -> dict[str, Any]:
    """A greedy completion."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 16, "temperature": 0, "return_token_ids": True}
    response = httpx.post(f"{deployed.base_url}/v1/completions", json=body, timeout=60)
    assert response.status_code == httpx.codes.OK, response.text
    found: dict[str, Any] = response.json()
    return found


def manifest_of(sample: str, **shape: Any) -> Manifest:
    """A sample, of a colocated one with another shape."""
    manifest: Manifest = yaml.safe_load((SAMPLES / f"{sample}.yaml").read_text())
    if shape:
        manifest["spec"]["placement"]["colocated"] = shape
        manifest["spec"]["cluster"] |= {"maxDevices": shape["tp"], "memoryPerDevice": "1Gi"}
    return manifest


def test_a_colocated_instance_of_three_ranks_answers_as_transformers_does(
    cluster: Cluster, reach: Reach, smollm2_reference: "transformers.LlamaForCausalLM"
) -> None:
    """B12, B14, B34: its pods have a memory volume at /dev/shm when they hold several ranks."""
    with applied(cluster, reach, manifest_of("smollm2-colocated", tp=3, chunkTokens=256)) as deployed:
        assert "1xTP3 colocated, chunks of 256" in deployed.namespace.kubectl("get", "dsd", deployed.name)
        assert deployed.condition("ColocatedReady")["status"] == "True"
        for prompt in PROMPTS:
            answer = answers(deployed, prompt)
            require_greedy(smollm2_reference, prompt, answer["choices"][0]["token_ids"])
            assert answer["usage"]["completion_tokens"] == 16


def test_a_prefill_instance_of_three_ranks_hands_its_kv_to_a_decode_instance_of_one(
    cluster: Cluster, reach: Reach, smollm2_reference: "transformers.LlamaForCausalLM"
) -> None:
    """B14: every rank has one of the three KV heads."""
    with applied(cluster, reach, manifest_of("smollm2-tp3")) as deployed:
        assert "1xTP3 -> 1xTP1" in deployed.namespace.kubectl("get", "dsd", deployed.name)
        for prompt in PROMPTS:
            answer = answers(deployed, prompt)
            require_greedy(smollm2_reference, prompt, answer["choices"][0]["token_ids"])
            blocks = -(-len(prompt) // 16)
            assert answer["distserve"]["kv_bytes"] == blocks * 16 * 30 * 2 * 3 * 64 * 4
        deployed.wait_no_blocks_held()


async def test_a_fleet_becomes_colocated_and_back_while_it_answers(cluster: Cluster, reach: Reach) -> None:
    """B13, B27, B28: no request fails, and the text is always the same."""
    manifest = manifest_of("smollm2")
    manifest["metadata"]["name"] = "changing"
    manifest["spec"]["cluster"] |= {"maxDevices": 3, "memoryPerDevice": "1536Mi"}
    apart = manifest["spec"]["placement"]
    with applied(cluster, reach, manifest) as deployed:
        body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
        done = asyncio.Event()
        asking = asyncio.create_task(ask_on(deployed.base_url, body, done))
        for placement in ({"type": "Manual", "colocated": {"replicas": 1}}, apart):
            manifest["spec"]["placement"] = placement
            await asyncio.to_thread(deployed.namespace.apply, manifest)
            await asyncio.to_thread(deployed.wait_condition, "Ready", "True", 300)
        done.set()
        texts = await asking
    assert len(set(texts)) == 1


async def ask_on(base_url: str, body: dict[str, Any], done: asyncio.Event) -> list[str]:
    """The same question again and again, until it is enough."""
    texts = []
    async with httpx.AsyncClient(base_url=base_url, timeout=60) as client:
        while not done.is_set():
            response = await client.post("/v1/completions", json=body)
            assert response.status_code == httpx.codes.OK, response.text
            texts.append(response.json()["choices"][0]["text"])
    return texts
