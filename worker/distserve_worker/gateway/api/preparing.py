"""Turns a checked body into a generation: tokens, sampling and limits, with the length checked once, here."""

import secrets

from distserve_proto.worker_pb2 import Sampling
from distserve_worker.gateway.api.bodies import GenerationBody
from distserve_worker.gateway.errors import context_length_exceeded, invalid
from distserve_worker.gateway.generation import Generation
from distserve_worker.text.tokenizer import Tokenizer

UINT64 = 2**64


def generation(request_id: str, body: GenerationBody, prompt: tuple[int, ...], tokenizer: Tokenizer) -> Generation:
    """What the workers are asked for. A request without a seed gets a random one, which it keeps on every worker."""
    return Generation(
        request_id=request_id,
        prompt=prompt,
        max_tokens=body.limit[0],
        sampling=_sampling(body, tokenizer.vocabulary_size),
        stop_strings=tuple(body.stop or ()),
        stop_token_ids=frozenset() if body.ignore_eos else tokenizer.stop_token_ids,
    )


def check_length(body: GenerationBody, prompt: tuple[int, ...], prompt_param: str, longest: int) -> None:
    """Raises `ApiError` (400) unless every instance that may get the request can hold all of it."""
    if not prompt:
        raise invalid(f"'{prompt_param}' holds no tokens", prompt_param)
    asked, limit_param = body.limit
    if len(prompt) + 1 > longest:
        raise context_length_exceeded(len(prompt), asked, longest, prompt_param)
    if asked is not None and len(prompt) + asked > longest:
        raise context_length_exceeded(len(prompt), asked, longest, limit_param)


def _sampling(body: GenerationBody, vocabulary_size: int) -> Sampling:
    top_k = body.top_k or 0
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=0 if top_k < 0 else min(top_k, vocabulary_size),
        seed=secrets.randbits(64) if body.seed is None else body.seed % UINT64,
    )
