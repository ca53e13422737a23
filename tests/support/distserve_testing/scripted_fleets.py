"""A runner in front of scripted workers, and a request for it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from distserve_proto.worker_pb2 import PHASE_DECODE, PHASE_PREFILL, Sampling
from distserve_testing.clusters import until
from distserve_testing.scripted_workers import TOKENIZER_DIGEST, WAIT_SECONDS, Act, ScriptedWorker, listening
from distserve_worker.gateway.deadlines import Deadlines
from distserve_worker.gateway.fleet import Fleet
from distserve_worker.gateway.generation import Generation
from distserve_worker.gateway.metrics import Metrics
from distserve_worker.gateway.running import Runner
from distserve_worker.gateway.workers.attaching import Target

PROMPT = (11, 12, 13)


@asynccontextmanager
async def deployed(
    *workers: ScriptedWorker, deadline_seconds: float = WAIT_SECONDS, milliseconds_per_token: float = 0
) -> AsyncIterator[Runner]:
    """A runner attached to all workers."""
    async with listening(*workers):
        fleet = Fleet("m")
        fleet.tokenizer_digest = TOKENIZER_DIGEST
        fleet.update([Target(worker.address, worker.address) for worker in workers])
        await asyncio.to_thread(until, lambda: len(fleet.candidates()) == len(workers), "all workers are attached")
        deadlines = Deadlines(deadline_seconds, milliseconds_per_token)
        yield Runner(fleet, deadlines, Metrics(fleet.usable_pairs, fleet.ready))
        await fleet.close()


def generation(max_tokens: int | None = None) -> Generation:
    """A request with a seed."""
    return Generation("r", PROMPT, max_tokens, Sampling(temperature=1, top_p=1, seed=9), (), frozenset({2}))


def prefill(*acts: Act) -> ScriptedWorker:
    """A prefill worker that does these acts."""
    return ScriptedWorker(PHASE_PREFILL, *acts)


def decode(*acts: Act) -> ScriptedWorker:
    """A decode worker that does these acts."""
    return ScriptedWorker(PHASE_DECODE, *acts)


def legs(workers: Sequence[ScriptedWorker]) -> list[list[str]]:
    """The ids of what each worker was given."""
    return [[submit.request_id for submit in worker.submits] for worker in workers]
