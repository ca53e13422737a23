"""What a client is told when a request cannot be answered, in the form of the OpenAI API."""

from dataclasses import dataclass
from typing import Any, Final

_SHOWN_CHARACTERS: Final = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One error: an HTTP status and the fields of OpenAI's error object."""

    status: int
    message: str
    type: str
    param: str | None = None
    code: str | None = None
    retry_after_seconds: int | None = None
    repeats: bool = True  # by itself, as OpenAI's clients do after 408, 409, 429 and 5xx

    @property
    def body(self) -> dict[str, Any]:
        """The error object as JSON."""
        fields = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": fields}

    @property
    def headers(self) -> dict[str, str]:
        """Headers that belong to the error."""
        seconds = self.retry_after_seconds
        after = {} if seconds is None else {"retry-after": str(seconds)}
        return after if self.repeats else after | {"x-should-retry": "false"}


class ApiError(Exception):
    """A request ends with `problem`: as a status before the first byte, as an SSE object after it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def shown(text: str) -> str:
    """What a client sent, as far as it is worth repeating to it."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The request itself is wrong; the same request will never succeed."""
    return ApiError(Problem(400, message, "invalid_request_error", param, code))


def unsupported(param: str, why: str = "is not supported") -> ApiError:
    """A parameter that would change the answer and cannot be honoured."""
    return invalid(f"'{param}' {why}", param, "unsupported_parameter")


def model_not_found(name: str) -> ApiError:
    """The model is not the one that this gateway serves."""
    message = f"The model '{shown(name)}' does not exist"
    return ApiError(Problem(404, message, "invalid_request_error", "model", "model_not_found"))


def too_many_requests(message: str) -> ApiError:
    """Bounded queues are full; the same request can succeed later."""
    return ApiError(Problem(429, message, "rate_limit_error", None, "queue_full", retry_after_seconds=1))


def unavailable(message: str, code: str) -> ApiError:
    """Nothing can answer at the moment."""
    return ApiError(Problem(503, message, "service_unavailable_error", None, code, retry_after_seconds=2))


def deadline_exceeded(message: str) -> ApiError:
    """The fleet did not answer in the time that the request's length allows."""
    return ApiError(Problem(504, message, "timeout_error", None, "deadline_exceeded"))


def model_failed(reason: str) -> ApiError:
    """The model has no answer to this request; the same request will never succeed."""
    message = f"The model failed on this request ({reason}); neither repeating it nor another worker helps"
    return ApiError(Problem(500, message, "server_error", None, "model_failed", repeats=False))


def workers_ended(count: int, reason: str) -> ApiError:
    """So many workers were lost as they began to compute this request; the next one may be too."""
    message = (
        f"{count} workers have failed as they began to compute this request (the last: {reason}): no other one is tried"
    )
    return ApiError(Problem(500, message, "server_error", None, "workers_ended", repeats=False))


def internal() -> ApiError:
    """A fault of ours; details are in the log only."""
    return ApiError(Problem(500, "The gateway failed on this request; see its log", "server_error", None, "internal"))


def context_length_exceeded(prompt: str, total: str, output: int | None, limit: int, param: str) -> ApiError:
    """Prompt and output together cannot be held by every instance that may get the request; counts as texts."""
    message = (
        f"This model holds at most {limit} tokens per request, but {total} are needed: "
        f"{prompt} in the prompt and {'at least 1' if output is None else output} to produce"
    )
    return invalid(message, param, "context_length_exceeded")
