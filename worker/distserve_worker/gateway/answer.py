"""What one request has produced so far: tokens, text that may be shown, stage times and who made it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import chain

from distserve_proto.worker_pb2 import Stages, TokenLogprobs
from distserve_worker.text.detokenizer import Detokenizer
from distserve_worker.text.stop_strings import StopStrings


class Finish(StrEnum):
    """Why an answer ended well; the values are OpenAI's."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds of a request's five stages; a stage that was repeated on another pair counts each time."""

    prefill_queue: float = 0.0
    prefill: float = 0.0
    transfer: float = 0.0
    decode_queue: float = 0.0
    decode: float = 0.0

    def plus(self, stages: Stages) -> "StageTimes":
        """With the times of one more leg."""
        names = [field.name for field in fields(self)]
        return replace(self, **{name: getattr(self, name) + getattr(stages, name) for name in names})


@dataclass(frozen=True, slots=True)
class ChosenToken:
    """A token of the answer with its log probabilities; `offset`: characters of the answer before it."""

    token: int
    offset: int
    logprobs: TokenLogprobs


@dataclass(frozen=True, slots=True)
class Piece:
    """What an answer has grown by: text, log probabilities where they are asked for, and `finish` with the last."""

    text: str
    chosen: tuple[ChosenToken, ...] = ()
    finish: Finish | None = None

    @classmethod
    def joined(cls, pieces: Sequence["Piece"]) -> "Piece":
        """All of an answer, from its first piece to its last."""
        chosen = chain.from_iterable(piece.chosen for piece in pieces)
        return cls("".join(piece.text for piece in pieces), tuple(chosen), pieces[-1].finish)


class Answer:
    """Grows with every token; the text after a stop string never shows. `changed` is called when it has grown.

    Stop strings count from the `min_tokens`-th token on.
    """

    def __init__(
        self, detokenizer: Detokenizer, stops: StopStrings, changed: Callable[[], None], min_tokens: int = 0
    ) -> None:
        self._changed = changed
        self._detokenizer = detokenizer
        self._stops = stops
        self._min_tokens = min_tokens
        self._grown = False
        self._fresh = ""
        self._length = 0  # of the text, with what no client sees
        self._chosen: list[ChosenToken] = []
        self._cached_tokens: int | None = None
        self.tokens: list[int] = []
        self.finish: Finish | None = None
        self.stages = StageTimes()
        self.kv_bytes = 0
        self.transport: str | None = None
        self.prefill_worker: str | None = None
        self.decode_worker: str | None = None

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt whose KV was there before the request came."""
        return self._cached_tokens or 0

    def accept(
        self, tokens: Sequence[int], ending: Finish | None = None, logprobs: Sequence[TokenLogprobs] = ()
    ) -> None:
        """Take the next tokens, the last of the answer when `ending` says so; a stop string may end it earlier.

        `logprobs`: one for each of them, or none at all.
        """
        for place, token in enumerate(tokens):
            self.tokens.append(token)
            if logprobs:
                self._chosen.append(ChosenToken(token, self._length, logprobs[place]))
            # the token that stops the model is counted, but it is no text
            if not (ending is Finish.STOP and place == len(tokens) - 1):
                self._add(self._detokenizer.feed([token]))
            if self._stops.stopped:
                break
        if self._stops.stopped or ending is not None:
            self._end(ending)
        if tokens or ending is not None:
            self._grown = True
            self._changed()

    def take(self) -> Piece | None:
        """What has not been taken yet; None when the answer has not grown.

        Log probabilities wait for as long as text is held back: they would tell it.
        """
        if not self._grown:
            return None
        self._grown = False
        text, self._fresh = self._fresh, ""
        if self._stops.holding:
            return Piece(text)
        chosen, self._chosen = tuple(self._chosen), []
        return Piece(text, chosen, self.finish)

    def record(self, stages: Stages) -> None:
        """Add what a worker says about its leg."""
        if self._cached_tokens is None:  # later legs find what the first one left
            self._cached_tokens = stages.cached_tokens
        self.stages = self.stages.plus(stages)
        self.kv_bytes += stages.kv_bytes
        self.transport = stages.transport or self.transport

    def _add(self, text: str) -> None:
        self._length += len(text)
        self._fresh += self._stops.feed(text, stopping=len(self.tokens) >= self._min_tokens)

    def _end(self, ending: Finish | None) -> None:
        self._add(self._detokenizer.finish())
        self._fresh += self._stops.finish()
        self.finish = Finish.STOP if self._stops.stopped else ending
