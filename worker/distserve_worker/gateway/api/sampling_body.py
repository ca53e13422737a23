"""The fields of a body that say how tokens are chosen and when the output ends, with the engine's own limits."""

from abc import abstractmethod
from typing import Annotated

from pydantic import BeforeValidator, Field

from distserve_worker import sampling_limits as limits
from distserve_worker.gateway.api.checked import INT32_MAX, INT64_MAX, INT64_MIN, BrokenRuleError, Checked, TokenId
from distserve_worker.gateway.errors import shown

# Every list has a bound or ends at its first fault: checking a body must cost no more than parsing it.
MAX_STOP_STRINGS = 4
MAX_STOP_CHARACTERS = 1024
MAX_STOP_TOKEN_IDS = 128
MAX_CHOICES = 128


def _as_list(stop: object) -> object:
    return [stop] if isinstance(stop, str) else stop


def _by_token_id(bias: object) -> object:
    """JSON can only name tokens by text; one name for each."""
    if not isinstance(bias, dict):
        return bias
    if len(bias) > limits.MAX_BIASED_TOKENS:
        message = f"'logit_bias' holds {len(bias)} tokens, at most {limits.MAX_BIASED_TOKENS} are taken"
        raise BrokenRuleError("logit_bias", message)
    for name in bias:
        if not (name.isascii() and name.isdigit() and name == (name.lstrip("0") or "0")):
            raise BrokenRuleError("logit_bias", f"'logit_bias': its keys must be token ids, got {shown(name)!r}")
    return {int(name): value for name, value in bias.items()}


StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
StopList = Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS, fail_fast=True)]
StopTokens = Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKEN_IDS, fail_fast=True)]
Penalty = Annotated[float, Field(ge=-limits.MAX_PENALTY, le=limits.MAX_PENALTY)]
Bias = Annotated[float, Field(ge=-limits.MAX_BIAS, le=limits.MAX_BIAS)]
Biases = Annotated[dict[TokenId, Bias] | None, BeforeValidator(_by_token_id)]
Logprobs = Annotated[int, Field(ge=0, le=limits.MAX_LOGPROBS)]


class SamplingBody(Checked):
    """Fields of all generation endpoints; those that are not OpenAI's are named as vLLM names them."""

    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    temperature: float | None = Field(default=None, ge=0, le=limits.MAX_TEMPERATURE)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=INT32_MAX)  # 0 and -1: all tokens
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=INT64_MIN, le=INT64_MAX)
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(
        default=None, ge=limits.MIN_REPETITION_PENALTY, le=limits.MAX_REPETITION_PENALTY
    )
    logit_bias: Biases = None
    min_tokens: int | None = Field(default=None, ge=0, le=INT32_MAX)
    stop: Annotated[StopList | None, BeforeValidator(_as_list)] = None
    stop_token_ids: StopTokens | None = None
    ignore_eos: bool | None = None  # for load tests that need an exact output length

    @property
    def choices(self) -> int:
        """How many answers are asked for."""
        return self.n or 1

    @property
    @abstractmethod
    def told_logprobs(self) -> int | None:
        """How many of the most likely tokens are told with each token; None: no log probabilities at all."""
