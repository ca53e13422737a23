"""What can go wrong between us and the API server."""

from typing import Any


class ApiRefusedError(Exception):
    """The API server answered with an error. `reason` and the text are its own."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @classmethod
    def of_answer(cls, status: int, answer: Any) -> "ApiRefusedError":  # noqa: ANN401 - whatever a proxy may send
        """From the body of an answer, normally a `Status` object."""
        body = answer if isinstance(answer, dict) else {}
        return cls(status, str(body.get("reason") or f"HTTP{status}"), str(body.get("message") or f"HTTP {status}"))

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later without anybody changing anything."""
        return self.status == 429 or self.status >= 500


class ApiUnreachableError(Exception):
    """There was no answer in time."""


class ForeignObjectError(Exception):
    """An object of that name exists and is not ours."""

    def __init__(self, kind: str, name: str, owner: str) -> None:
        super().__init__(f"{kind} {name} is managed by {owner}")
        self.kind = kind
        self.name = name
        self.owner = owner
