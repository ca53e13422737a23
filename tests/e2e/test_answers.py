"""What the deployed system answers, against transformers and through openai-python."""

from typing import TYPE_CHECKING

import httpx
import openai
import pytest
from distserve_testing.deployed import Deployed
from distserve_testing.reference import require_greedy
from openai.types.chat import ChatCompletionMessageParam

if TYPE_CHECKING:
    import transformers

pytestmark = pytest.mark.cluster
MODEL = "smollm2-135m-instruct"
LENGTHS = [1, 2, 3, 5, 8, 13, 15, 16, 17, 21, 31, 32, 33, 48, 64, 80, 100, 128, 150, 200, 333, 1500]


def prompt_of(length: int) -> list[int]:
    """Token ids that look nothing like each other's prefixes."""
    return [1 + (7919 * (position + 1) * (length + 3)) % 49_000 for position in range(length)]


@pytest.mark.timeout(600)
def test_greedy_text_equals_transformers_token_for_token(
    deployed: Deployed, smollm2_reference: "transformers.LlamaForCausalLM"
) -> None:
    for length in LENGTHS:
        prompt = prompt_of(length)
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 16, "temperature": 0, "return_token_ids": True}
        response = httpx.post(f"{deployed.base_url}/v1/completions", json=body, timeout=60)
        assert response.status_code == httpx.codes.OK, response.text
        require_greedy(smollm2_reference, prompt, response.json()["choices"][0]["token_ids"])


def test_openai_python_talks_to_it(deployed: Deployed) -> None:
    with openai.OpenAI(base_url=f"{deployed.base_url}/v1", api_key="none", max_retries=0) as client:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]
        chat = client.chat.completions.create(model=MODEL, messages=messages, temperature=0, max_tokens=24)
        assert "Paris" in (chat.choices[0].message.content or "")
        stream = client.chat.completions.create(
            model=MODEL,
            messages=messages,
            temperature=0,
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == chat.choices[0].message.content
        streamed, whole = chunks[-1].usage, chat.usage
        assert streamed is not None
        assert whole is not None
        assert (streamed.prompt_tokens, streamed.completion_tokens) == (whole.prompt_tokens, whole.completion_tokens)
        assert streamed.prompt_tokens_details is not None
        assert streamed.prompt_tokens_details.cached_tokens == whole.prompt_tokens // 16 * 16, "the prompt came before"
        with pytest.raises(openai.NotFoundError, match="no-such-model"):
            client.completions.create(model="no-such-model", prompt="x")
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.completions.create(model=MODEL, prompt="x", temperature=-1)


def test_the_pull_between_two_pods_is_reported(deployed: Deployed) -> None:
    body = {"model": MODEL, "prompt": prompt_of(100), "max_tokens": 4, "temperature": 0}
    extra = httpx.post(f"{deployed.base_url}/v1/completions", json=body, timeout=60).json()["distserve"]
    assert extra["transport"] == "tcp"
    blocks = -(-100 // 16)
    assert extra["kv_bytes"] == blocks * 16 * 30 * 2 * 3 * 64 * 4
    assert set(extra["stages"]) == {"prefill_queue", "prefill", "transfer", "decode_queue", "decode"}
