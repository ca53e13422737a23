"""What the measuring process tells, one JSON object a line. No torch: whoever reads it may have none."""

import json
from dataclasses import asdict, dataclass
from typing import Final, Literal

Phase = Literal["prefill", "decode"]
Kind = Literal["prefill", "decode", "mixed"]  # of steps


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured; comes first."""

    device: str  # by the name that plans give it
    processor: str  # for people
    threads: int
    temperature: float  # of all requests: choosing a token is part of the host's cost
    longest_request: int  # tokens
    kv_tokens: int  # that the KV memory holds while measuring
    decode_requests: int  # most of a batch, as in a worker that is told nothing else


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is; `share` of the whole is 0 to 1."""

    share: float
    doing: str


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of step. Prefill counts the tokens of its prompts, decode those of its contexts."""

    phase: Phase
    requests: int
    tokens: int
    squares: int  # sum of the squared lengths
    seconds: float  # median of the whole step, over the calmer half of its repetitions
    host_seconds: float  # median of the same step with a model that computes nothing
    spread: float  # median distance of all repetitions from `seconds`, as a share of it
    repetitions: int


@dataclass(frozen=True, slots=True)
class MixedStep:
    """One kind of decode step that carries a prompt, or the rest of one."""

    requests: int  # that decode
    context: int  # their tokens together
    before: int  # tokens of the prompt that are computed already
    chunk: int  # tokens of it that this step computes
    seconds: float  # median, as of a `Step`
    alone: float  # seconds: median of the same decode step without the prompt
    spread: float  # as of a `Step`
    repetitions: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why it ended early; `reason` is an `ExitReason`."""

    reason: str
    text: str


Message = Subject | Progress | Step | MixedStep | Failure

_KINDS: Final[dict[str, type[Message]]] = {
    kind.__name__.lower(): kind for kind in (Subject, Progress, Step, MixedStep, Failure)
}


def line_of(message: Message) -> str:
    """The message without the end of the line."""
    return json.dumps({"kind": type(message).__name__.lower(), **asdict(message)}, allow_nan=False)


def message_of(line: str) -> Message:
    """The message in a line. Raises ValueError with the line when it is none."""
    try:
        fields = json.loads(line)
        return _KINDS[fields.pop("kind")](**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{line.strip()[:200]!r} is no message of the measuring process") from error
