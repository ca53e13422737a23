"""Which sampling parameters an engine takes; the same limits as the gateway's, from `sampling_limits`."""

from collections.abc import Iterator

from distserve_worker import sampling_limits as limits
from distserve_worker.engine.interface import Refused, Sampling, Work


def check_sampling(work: Work, vocabulary: int) -> None:
    """Raises `Refused` with the field, the value and what is allowed."""
    objection = next(_objections(work, vocabulary), None)
    if objection is not None:
        raise Refused(objection)


def _objections(work: Work, vocabulary: int) -> Iterator[str]:
    sampling = work.sampling
    if not 0 <= sampling.seed < 2**64:
        yield f"seed is {sampling.seed}, it must fit 64 bits"
    yield from _outside(sampling)
    yield from _bias_objections(sampling, vocabulary)
    if sampling.logprobs is not None and not 0 <= sampling.logprobs <= limits.MAX_LOGPROBS:
        yield f"logprobs is {sampling.logprobs}, it must be from 0 to {limits.MAX_LOGPROBS}"
    yield from _stop_objections(work, vocabulary)


def _outside(sampling: Sampling) -> Iterator[str]:
    """Numbers outside of their ranges; NaN is in none."""
    if not 0.0 <= sampling.temperature <= limits.MAX_TEMPERATURE:
        yield f"temperature is {sampling.temperature}, it must be from 0 to {limits.MAX_TEMPERATURE:g}"
    if not 0.0 < sampling.top_p <= 1.0:
        yield f"top_p is {sampling.top_p}, it must be greater than 0 and at most 1"
    if sampling.top_k < 0:
        yield f"top_k is {sampling.top_k}, it must be 0 (all) or greater"
    if not 0.0 <= sampling.min_p <= 1.0:
        yield f"min_p is {sampling.min_p}, it must be from 0 to 1"
    low, high = limits.MIN_REPETITION_PENALTY, limits.MAX_REPETITION_PENALTY
    if not low <= sampling.repetition_penalty <= high:
        yield f"repetition_penalty is {sampling.repetition_penalty}, it must be from {low:g} to {high:g}"
    for name in ("presence_penalty", "frequency_penalty"):
        value: float = getattr(sampling, name)
        if not -limits.MAX_PENALTY <= value <= limits.MAX_PENALTY:
            yield f"{name} is {value}, it must be from {-limits.MAX_PENALTY:g} to {limits.MAX_PENALTY:g}"


def _bias_objections(sampling: Sampling, vocabulary: int) -> Iterator[str]:
    bias, most = sampling.logit_bias, limits.MAX_BIAS
    if len(bias) > limits.MAX_BIASED_TOKENS:
        yield f"logit_bias holds {len(bias)} tokens, at most {limits.MAX_BIASED_TOKENS} are taken"
    for token, value in bias:
        if not 0 <= token < vocabulary:
            yield f"logit_bias names token id {token}, the vocabulary has {vocabulary} tokens"
        if not -most <= value <= most:
            yield f"logit_bias of token id {token} is {value}, it must be from {-most:g} to {most:g}"


def _stop_objections(work: Work, vocabulary: int) -> Iterator[str]:
    stops, least = work.stop_token_ids, work.sampling.min_tokens
    if len(stops) > limits.MAX_STOP_TOKENS:
        yield f"stop_token_ids holds {len(stops)} tokens, at most {limits.MAX_STOP_TOKENS} are taken"
    for token in stops:
        if not 0 <= token < vocabulary:
            yield f"stop_token_ids names token id {token}, the vocabulary has {vocabulary} tokens"
    if least < 0:
        yield f"min_tokens is {least}, it must be 0 or greater"
    if work.max_tokens is not None and least > work.max_tokens:
        yield f"min_tokens is {least}, it must be at most max_tokens, which is {work.max_tokens}"
    if least and len(stops) >= vocabulary:
        yield f"min_tokens is {least}, but each of the {vocabulary} tokens of the vocabulary is a stop token"
