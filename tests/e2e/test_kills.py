"""Any one process is killed while sixteen streams run: nothing hangs, nothing is lost, all comes back by itself."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import psutil
import pytest
from distserve_testing.clusters import processes_of, until
from distserve_testing.deployed import Deployed, Victim
from distserve_testing.streaming import Stream, start_streams

from distserve_devcluster.cluster import ClusterSpec
from distserve_devcluster.running import status

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
MODEL = "smollm2-135m-instruct"
STREAMS = 16


def bodies() -> list[dict[str, Any]]:
    """Sixteen different requests of a few seconds each."""
    return [
        {
            "model": MODEL,
            "prompt": f"Story number {number}: once upon a time",
            "max_tokens": 48 + 4 * number,
            "temperature": 0.8,
            "seed": number,
            "stream": True,
            "ignore_eos": True,
        }
        for number in range(STREAMS)
    ]


@pytest.fixture
async def client(deployed: Deployed) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=deployed.base_url, limits=limits) as client:
        yield client


@pytest.fixture(scope="module")
def expected(smollm2: Deployed) -> list[str]:
    """The sixteen texts when nothing is killed."""

    async def ask() -> list[Stream]:
        async with httpx.AsyncClient(base_url=smollm2.base_url) as client:
            return await asyncio.gather(*await start_streams(client, bodies()))

    smollm2.wait_serving()
    streams = asyncio.run(ask())
    assert all(stream.ended_well for stream in streams)
    return [stream.text for stream in streams]


async def finish(tasks: list[asyncio.Task[Stream]]) -> list[Stream]:
    """All streams once each has ended; one that stands still for ten seconds raises."""
    return await asyncio.gather(*tasks)


def assert_nothing_lost_or_repeated(streams: list[Stream], expected: list[str]) -> None:
    """Each ended with its text, or with a typed error after a prefix of it."""
    for stream, text in zip(streams, expected, strict=True):
        assert stream.ended_well or stream.ended_with_typed_error, stream
        assert stream.text == text if stream.ended_well else text.startswith(stream.text), (stream.text, text)


def assert_no_orphans(spec: ClusterSpec) -> None:
    """Every process of the product that runs in the cluster belongs to a container that its kubelet knows."""
    cluster = status(spec.state)
    assert cluster is not None
    known: set[int] = set()
    for container in cluster.containers:
        first = psutil.Process(container.pid)
        known |= {first.pid, *(child.pid for child in first.children(recursive=True))}
    ours = [each for each in processes_of(cluster) if any("distserve_" in word for word in each.cmdline())]
    strays = [each.cmdline() for each in ours if each.pid not in known and not _runs_a_known_container(each, known)]
    assert not strays


def _runs_a_known_container(process: psutil.Process, known: set[int]) -> bool:
    return any(child.pid in known for child in process.children())


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_killed_worker_is_replaced(
    deployed: Deployed, spec: ClusterSpec, client: httpx.AsyncClient, expected: list[str], role: str
) -> None:
    """B3, B5, B8, B13."""
    victim, other = deployed.victim(role), deployed.victim("decode" if role == "prefill" else "prefill")
    before, others_before = victim.restarts, other.restarts
    tasks = await start_streams(client, bodies())
    victim.kill()
    assert_nothing_lost_or_repeated(await finish(tasks), expected)
    await asyncio.to_thread(victim.wait_restarted, before)
    await assert_all_is_well_again(deployed, spec, client, expected)
    assert other.restarts == others_before, f"{other.pod} had to restart because {victim.pod} did"


async def test_a_killed_gateway_is_replaced(
    deployed: Deployed, spec: ClusterSpec, client: httpx.AsyncClient, expected: list[str]
) -> None:
    """B5: the workers free what the dead gateway's requests held."""
    victim = deployed.victim("gateway")
    before = victim.restarts
    tasks = await start_streams(client, bodies())
    victim.kill()
    for stream in await finish(tasks):
        assert stream.ended_well or stream.ended_with_typed_error or stream.disconnected, stream
    await asyncio.to_thread(deployed.wait_no_blocks_held)
    await asyncio.to_thread(victim.wait_restarted, before)
    await assert_all_is_well_again(deployed, spec, client, expected)


async def test_streams_do_not_notice_a_killed_operator(
    deployed: Deployed, operator: Victim, spec: ClusterSpec, client: httpx.AsyncClient, expected: list[str]
) -> None:
    """B24: it also acts on what happened while it was down."""
    before = operator.restarts
    tasks = await start_streams(client, bodies())
    operator.kill()
    streams = await finish(tasks)
    assert [stream.text for stream in streams] == expected
    assert all(stream.ended_well for stream in streams)
    lost = deployed.only_pod("decode")
    deployed.namespace.kubectl("delete", "pod", lost, "--wait=false")
    await asyncio.to_thread(operator.wait_restarted, before)
    await asyncio.to_thread(until, lambda: bool(deployed.pods("decode")), "the operator made another decode pod")
    await asyncio.to_thread(deployed.namespace.wait_ready, deployed.only_pod("decode"), 180)
    await assert_all_is_well_again(deployed, spec, client, expected)


async def assert_all_is_well_again(
    deployed: Deployed, spec: ClusterSpec, client: httpx.AsyncClient, expected: list[str]
) -> None:
    """Ready, serving the same text, no block held, no process without a container."""
    await asyncio.to_thread(deployed.wait_condition, "Ready", "True")
    await asyncio.to_thread(deployed.wait_serving)
    (again,) = await finish(await start_streams(client, bodies()[:1]))
    assert again.text == expected[0]
    await asyncio.to_thread(deployed.wait_no_blocks_held)
    assert_no_orphans(spec)
