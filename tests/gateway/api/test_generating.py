"""One request with several choices or an API key, over the whole application in this process and scripted workers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from distserve_testing.clusters import until
from distserve_testing.scripted_workers import (
    TOKENIZER_DIGEST,
    ScriptedWorker,
    begins,
    decodes,
    fails,
    hangs_up,
    listening,
    prefills,
    says_nothing,
)

from distserve_proto.worker_pb2 import FAILURE_CODE_DEADLINE, FAILURE_CODE_QUEUE_FULL, PHASE_DECODE, PHASE_PREFILL
from distserve_worker.gateway.admission import Admission
from distserve_worker.gateway.api.application import application
from distserve_worker.gateway.api.generating import Service
from distserve_worker.gateway.api.receiving import BodyLimits
from distserve_worker.gateway.deadlines import Deadlines
from distserve_worker.gateway.fleet import Fleet
from distserve_worker.gateway.metrics import Metrics
from distserve_worker.gateway.readiness import Readiness
from distserve_worker.gateway.running import Runner
from distserve_worker.gateway.workers.attaching import Target
from distserve_worker.text.tokenizer import ModelText

PATH = "/v1/completions"
BODY: dict[str, Any] = {"model": "m", "prompt": [11, 12, 13], "max_tokens": 3}
PLACES = 4


@asynccontextmanager
async def client_of(
    text: ModelText, *workers: ScriptedWorker, isolate_prefixes: bool = False
) -> AsyncIterator[httpx.AsyncClient]:
    async with listening(*workers):
        fleet = Fleet("m")
        fleet.tokenizer_digest = TOKENIZER_DIGEST
        fleet.update([Target(worker.address, worker.address) for worker in workers])
        await asyncio.to_thread(until, lambda: len(fleet.candidates()) == len(workers), "all workers are attached")
        readiness = Readiness()
        readiness.loaded(text)
        metrics = Metrics(fleet.usable_pairs, fleet.ready)
        service = Service(
            model="m",
            readiness=readiness,
            admission=Admission(PLACES, 2**20, metrics),
            limits=BodyLimits(2**20, 30),
            runner=Runner(fleet, Deadlines(30, 0), metrics),
            isolate_prefixes=isolate_prefixes,
        )
        transport = httpx.ASGITransport(app=application(service, 0))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=30) as client:
            yield client
        await fleet.close()


async def _salts(text: ModelText, isolate_prefixes: bool, *headers: dict[str, str]) -> list[str]:
    pair = (
        ScriptedWorker(PHASE_PREFILL, *[prefills] * len(headers)),
        ScriptedWorker(PHASE_DECODE, *[decodes(1)] * len(headers)),
    )
    async with client_of(text, *pair, isolate_prefixes=isolate_prefixes) as client:
        for header in headers:
            assert (await client.post(PATH, json=BODY, headers=header)).status_code == 200
    assert [submit.prefix_salt for submit in pair[1].submits] == [submit.prefix_salt for submit in pair[0].submits]
    return [submit.prefix_salt for submit in pair[0].submits]


async def test_prefixes_are_shared_by_all_unless_they_are_kept_apart(smollm2_text: ModelText) -> None:
    assert await _salts(smollm2_text, False, {}, {"authorization": "Bearer one"}) == ["", ""]


async def test_prefixes_that_are_kept_apart_are_shared_by_one_key_alone(smollm2_text: ModelText) -> None:
    """Workers do not learn the key."""
    keys = ["Bearer one", "bearer  one", "Bearer two", "Basic one"]
    salts = await _salts(smollm2_text, True, {}, *[{"authorization": key} for key in keys])
    none, one, same, two, basic = salts
    assert one == same
    assert len({none, one, two, basic}) == 4
    assert all(len(salt) == 64 and "one" not in salt for salt in salts)


async def test_when_one_choice_fails_the_request_does_and_the_others_are_freed(smollm2_text: ModelText) -> None:
    """B3: an error after the first byte, and no end mark."""
    first = ScriptedWorker(PHASE_PREFILL, prefills, prefills)
    second = ScriptedWorker(PHASE_DECODE, says_nothing, fails(FAILURE_CODE_DEADLINE))
    async with client_of(smollm2_text, first, second) as client:
        response = await client.post(PATH, json=BODY | {"n": 2, "stream": True})
        waiting = second.submits[0].request_id
        await second.until_cancelled(waiting)
    last = response.text.strip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "deadline_exceeded"


async def test_a_prompt_that_ends_workers_ends_two_however_many_choices_are_asked_for(smollm2_text: ModelText) -> None:
    """None but the first is begun before it has a token."""
    dying = [ScriptedWorker(PHASE_PREFILL, begins(hangs_up)) for _ in range(2)]
    others = ScriptedWorker(PHASE_PREFILL, *[prefills] * 3), ScriptedWorker(PHASE_DECODE, *[decodes(1)] * 3)
    async with client_of(smollm2_text, *dying, *others) as client:
        response = await client.post(PATH, json=BODY | {"n": 3})
    assert response.json()["error"]["code"] == "workers_ended"
    assert [len(worker.submits) for worker in dying] == [1, 1]
    assert not others[0].submits


async def test_choices_beside_the_first_wait_for_room(smollm2_text: ModelText) -> None:
    """B9: what has begun goes on, as long as it may wait."""
    first = ScriptedWorker(PHASE_PREFILL, prefills, fails(FAILURE_CODE_QUEUE_FULL), prefills)
    async with client_of(smollm2_text, first, ScriptedWorker(PHASE_DECODE, decodes(2), decodes(2))) as client:
        response = await client.post(PATH, json=BODY | {"n": 2})
    assert response.status_code == 200, response.text
    assert len(response.json()["choices"]) == 2


@pytest.mark.parametrize(
    ("choices", "status", "words"),
    [(PLACES, 429, "takes 4 requests at once and has 2"), (PLACES + 1, 400, "'n' must be at most 4")],
)
async def test_every_choice_takes_a_place(smollm2_text: ModelText, choices: int, status: int, words: str) -> None:
    """A number that never fits is an error of the request, one that does not fit now is not."""
    first = ScriptedWorker(PHASE_PREFILL, says_nothing)
    async with client_of(smollm2_text, first, ScriptedWorker(PHASE_DECODE)) as client:
        running = asyncio.create_task(client.post(PATH, json=BODY))
        await first.until(lambda: bool(first.submits))
        response = await client.post(PATH, json=BODY | {"n": choices})
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert response.status_code == status
    assert words in response.json()["error"]["message"]
