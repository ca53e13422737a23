"""What one request has produced so far: tokens, text that may be shown, stage times and who made it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from distserve_proto.worker_pb2 import Stages
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


class Answer:
    """Grows with every token; the text after a stop string never shows. `changed` is called when it has grown."""

    def __init__(self, detokenizer: Detokenizer, stops: StopStrings, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._detokenizer = detokenizer
        self._stops = stops
        self._fresh = ""
        self.tokens: list[int] = []
        self.finish: Finish | None = None
        self.stages = StageTimes()
        self.kv_bytes = 0
        self.transport: str | None = None
        self.prefill_worker: str | None = None
        self.decode_worker: str | None = None

    def accept(self, tokens: Sequence[int], ending: Finish | None = None) -> None:
        """Take the next tokens, the last of the answer when `ending` says so; a stop string may end it earlier."""
        for place, token in enumerate(tokens, start=1):
            self.tokens.append(token)
            # the token that stops the model is counted, but it is no text
            if not (ending is Finish.STOP and place == len(tokens)):
                self._fresh += self._stops.feed(self._detokenizer.feed([token]))
            if self._stops.stopped:
                break
        if self._stops.stopped or ending is not None:
            self._end(ending)
        self._changed()

    def take(self) -> str:
        """The text that has not been taken yet."""
        fresh, self._fresh = self._fresh, ""
        return fresh

    def record(self, stages: Stages) -> None:
        """Add what a worker says about its leg."""
        self.stages = self.stages.plus(stages)
        self.kv_bytes += stages.kv_bytes
        self.transport = stages.transport or self.transport

    def _end(self, ending: Finish | None) -> None:
        self._fresh += self._stops.feed(self._detokenizer.finish())
        self._fresh += self._stops.finish()
        self.finish = Finish.STOP if self._stops.stopped else ending
