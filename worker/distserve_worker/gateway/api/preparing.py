"""Turns a checked body into generations: tokens, sampling and limits, with the length checked once, here."""

import secrets
from dataclasses import replace
from typing import Any

from distserve_proto.worker_pb2 import Sampling
from distserve_worker.gateway.api.bodies import GenerationBody
from distserve_worker.gateway.api.dialects import Dialect
from distserve_worker.gateway.errors import ApiError, context_length_exceeded, invalid
from distserve_worker.gateway.generation import Generation
from distserve_worker.text.tokenizer import ModelText, TextTooLongError, Tokenizer

UINT64 = 2**64


def generations(
    request_id: str, body: GenerationBody, prompt: tuple[int, ...], tokenizer: Tokenizer, prefix_salt: str
) -> tuple[Generation, ...]:
    """What the workers are asked for, once for each choice. Raises `ApiError` (400) for tokens that do not exist.

    Their seeds follow each other. Without a seed each gets a random one, which it keeps on every worker.
    """
    _check_token_ids(body, tokenizer.vocabulary_size)
    own = frozenset() if body.ignore_eos else tokenizer.stop_token_ids
    first = Generation(
        request_id=request_id,
        prompt=prompt,
        max_tokens=body.limit[0],
        sampling=_sampling(body, 0, tokenizer.vocabulary_size),
        stop_strings=tuple(body.stop or ()),
        stop_token_ids=own | frozenset(body.stop_token_ids or ()),
        prefix_salt=prefix_salt,
    )
    others = (
        replace(first, request_id=f"{request_id}-{index}", sampling=_sampling(body, index, tokenizer.vocabulary_size))
        for index in range(1, body.choices)
    )
    return first, *others


def prompt_tokens(dialect: Dialect[Any], body: GenerationBody, text: ModelText, longest: int) -> tuple[int, ...]:
    """The prompt in tokens, checked against what the fleet holds. Slow for long prompts. Raises `ApiError` (400)."""
    try:
        prompt = dialect.tokens(body, text, longest)
    except TextTooLongError as error:
        raise _too_long(error.at_least, body, longest, dialect.prompt_param, "at least ") from error
    check_length(body, prompt, dialect.prompt_param, longest)
    return prompt


def check_length(body: GenerationBody, prompt: tuple[int, ...], prompt_param: str, longest: int) -> None:
    """Raises `ApiError` (400) unless every instance that may get the request can hold all of it."""
    if not prompt:
        raise invalid(f"'{prompt_param}' holds no tokens", prompt_param)
    asked, limit_param = body.limit
    if len(prompt) + 1 > longest:
        raise _too_long(len(prompt), body, longest, prompt_param)
    if asked is not None and len(prompt) + asked > longest:
        raise _too_long(len(prompt), body, longest, limit_param)
    least = body.min_tokens or 0
    if len(prompt) + least > longest:
        raise context_length_exceeded(str(len(prompt)), str(len(prompt) + least), least, longest, "min_tokens")


def _too_long(prompt: int, body: GenerationBody, longest: int, param: str, bound: str = "") -> ApiError:
    asked, _ = body.limit
    total = prompt + (1 if asked is None else asked)
    return context_length_exceeded(f"{bound}{prompt}", f"{bound}{total}", asked, longest, param)


def _sampling(body: GenerationBody, index: int, vocabulary_size: int) -> Sampling:
    top_k = body.top_k or 0
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=0 if top_k < 0 else min(top_k, vocabulary_size),
        min_p=body.min_p or 0.0,
        seed=secrets.randbits(64) if body.seed is None else (body.seed + index) % UINT64,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        logit_bias=body.logit_bias or {},
        min_tokens=body.min_tokens or 0,
        logprobs=body.told_logprobs,
    )


def _check_token_ids(body: GenerationBody, vocabulary_size: int) -> None:
    for index, token in enumerate(body.stop_token_ids or ()):
        if token >= vocabulary_size:
            raise _no_token(f"stop_token_ids[{index}]", token, vocabulary_size)
    for token in body.logit_bias or {}:
        if token >= vocabulary_size:
            raise _no_token("logit_bias", token, vocabulary_size)


def _no_token(param: str, token: int, vocabulary_size: int) -> ApiError:
    return invalid(f"'{param}': the vocabulary has {vocabulary_size} tokens, got {token}", param, "invalid_value")
