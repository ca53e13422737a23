"""Colocated workers answer like a pair, and a request that loses its place in a full decode worker loses nothing."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.workers import WorkerProcess, started_pair

StartGateway = Callable[..., GatewayProcess]
LIMITS: dict[str, Any] = {"max_model_length": 4096, "kv_cache_memory": "64Mi", "max_batch_tokens": 256}
PROMPTS = ["hello", "Once upon a time there was", "x" * 300, "The capital of France"]
SAMPLED = {"temperature": 1.0, "seed": 7, "max_tokens": 24, "ignore_eos": True}


@pytest.fixture(scope="module")
def colocated(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """Both phases in one instance of two stages of two ranks, prompts in pieces of 64 tokens."""
    shape: dict[str, Any] = {"tp": 2, "pp": 2, "chunk_tokens": 64}
    worker = WorkerProcess("colocated", tiny_llama, tmp_path_factory.mktemp("colocated"), **LIMITS, **shape)
    yield worker
    worker.kill()


def choices(gateway: GatewayProcess, fields: dict[str, Any]) -> list[Any]:
    """Answers to all prompts at once."""
    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        answers = list(threads.map(lambda prompt: gateway.complete(prompt, **fields).json(), PROMPTS))
    return [answer["choices"][0] | {"usage": answer["usage"]} for answer in answers]


@pytest.mark.parametrize("fields", [{"logprobs": 2}, SAMPLED], ids=["greedy", "sampled"])
def test_the_answers_are_those_of_a_pair_field_by_field(
    gateway: GatewayProcess, colocated: WorkerProcess, start_gateway: StartGateway, fields: dict[str, Any]
) -> None:
    """B12 and B14."""
    other = start_gateway(colocated).wait_until_usable()
    pair, alone = (choices(one, fields) for one in (gateway, other))
    if "logprobs" in fields:
        for answer in (*pair, *alone):
            logprobs = answer.pop("logprobs")
            assert len(logprobs["tokens"]) == answer["usage"]["completion_tokens"]
    assert alone == pair
    colocated.wait_until_empty()


def test_stages_and_workers_are_told(colocated: WorkerProcess, start_gateway: StartGateway) -> None:
    gateway = start_gateway(colocated).wait_until_usable()
    told = gateway.complete("tell me", max_tokens=4, ignore_eos=True).json()["distserve"]
    assert (told["kv_bytes"], told["transport"]) == (0, None)
    assert told["prefill_worker"] == told["decode_worker"]
    assert told["stages"]["prefill"] > 0
    assert told["stages"]["decode"] > 0


def test_a_client_that_leaves_frees_the_worker(colocated: WorkerProcess, start_gateway: StartGateway) -> None:
    """B5."""
    gateway = start_gateway(colocated).wait_until_usable()
    with gateway.openai() as client:
        stream = client.completions.create(
            model="test-model", prompt="go on", max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        stream.close()
    colocated.wait_until_empty()


def test_a_request_that_is_put_back_goes_through_prefill_again_and_loses_no_token(
    tiny_llama: Path, gateway: GatewayProcess, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """B13: the decode worker has room for 20 blocks of 16 tokens, each request comes to 14."""
    fields = {"max_tokens": 200, "ignore_eos": True, "temperature": 1.0, "seed": 3}
    prompts = ["one after the other", "all at the same time"]
    expected = [gateway.complete(prompt, **fields).json()["choices"][0]["text"] for prompt in prompts]
    small = LIMITS | {"max_model_length": 256, "kv_cache_memory": "120Ki"}
    with started_pair(tiny_llama, tmp_path, LIMITS, small) as pair:
        full = start_gateway(*pair).wait_until_usable()
        with ThreadPoolExecutor(2) as threads:
            answers = list(threads.map(lambda prompt: full.complete(prompt, **fields).json(), prompts))
        assert [answer["choices"][0]["text"] for answer in answers] == expected
        assert pair.decode.metrics()["requests_put_back_total"] >= 1
        for worker in pair:
            worker.wait_until_empty()
