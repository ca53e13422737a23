"""One request inside an engine, and the checks that admit it."""

from dataclasses import dataclass, field
from enum import Enum, auto

from distserve_worker.engine.interface import Description, FinishReason, Refused, TooLong, Work
from distserve_worker.engine.sampling.checks import check_sampling
from distserve_worker.engine.sampling.choice import Choice


class Stage(Enum):
    """Where a request is in its engine."""

    WAITING = auto()
    RESERVED = auto()
    RUNNING = auto()
    PARKED = auto()


@dataclass(slots=True, eq=False)
class Request:
    """A request as it grows: `tokens` is the prompt and the output so far. Equal only to itself."""

    work: Work
    limit: int  # length of `tokens` at which the request ends
    stage: Stage = Stage.WAITING
    started: bool = False  # something of it has been computed here
    tokens: list[int] = field(init=False)
    choice: Choice = field(init=False)  # of the next token

    def __post_init__(self) -> None:
        work = self.work
        self.tokens = [*work.prompt, *work.output]
        self.choice = Choice.of(work.sampling, work.prompt, work.output, work.stop_token_ids)

    @property
    def request_id(self) -> str:
        """The id that the server knows it by."""
        return self.work.request_id

    @property
    def salt(self) -> str:
        """Whom it shares the KV of equal beginnings with."""
        return self.work.prefix_salt

    @property
    def position(self) -> int:
        """Position in the output of the next token."""
        return len(self.tokens) - len(self.work.prompt)

    def append(self, token: int) -> FinishReason | None:
        """Take the next token; the reason when it is the last."""
        self.tokens.append(token)
        self.choice.take(token)
        if token in self.work.stop_token_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.tokens) >= self.limit else None


def admitted(work: Work, description: Description, vocabulary: int) -> Request:
    """The request for `work`. Raises `TooLong` when it never fits, `Refused` when it makes no sense."""
    _check_tokens(work, vocabulary)
    check_sampling(work, vocabulary)
    limit = description.max_model_length
    if work.max_tokens is not None:
        limit = len(work.prompt) + work.max_tokens
        if work.max_tokens <= len(work.output):
            raise Refused(f"max_tokens is {work.max_tokens}, and {len(work.output)} output tokens exist already")
    if limit > description.max_model_length or len(work.prompt) + len(work.output) >= description.max_model_length:
        raise TooLong(
            f"{len(work.prompt)} prompt tokens and {_asked(work)} output tokens, "
            f"the limit for both together is {description.max_model_length}"
        )
    return Request(work, limit)


def _asked(work: Work) -> str:
    return str(work.max_tokens) if work.max_tokens is not None else f"at least {len(work.output) + 1}"


def _check_tokens(work: Work, vocabulary: int) -> None:
    if not work.prompt:
        raise Refused("the prompt has no tokens")
    tokens = work.prompt + work.output
    for extreme in (min(tokens), max(tokens)):
        if not 0 <= extreme < vocabulary:
            raise Refused(f"token id {extreme} is not in the vocabulary of {vocabulary} tokens")
