"""What goes through the pipe between a driver and the agent of one of its ranks; all of it is pickled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from distserve_worker.transfer.agent import Choice, Share, Way
from distserve_worker.transfer.interface import Fault, Source, TransferError


@dataclass(frozen=True, slots=True)
class Failure:
    """A `TransferError` on its way."""

    fault: Fault
    text: str

    @classmethod
    def of(cls, error: TransferError) -> Self:
        """From the error."""
        return cls(error.fault, str(error).removeprefix(f"{error.fault}: "))

    def error(self) -> TransferError:
        """The error again."""
        return TransferError(self.fault, self.text)


@dataclass(frozen=True, slots=True)
class Offer:
    """See `Agent.offer`; answered by a `Source`, and later by `Ended` with the same number."""

    call: int
    transport: str
    share: Share
    seconds: float


@dataclass(frozen=True, slots=True)
class Withdraw:
    """See `Agent.withdraw`."""

    transport: str
    ticket: bytes


@dataclass(frozen=True, slots=True)
class Choose:
    """See `Agent.choose`; answered by a `Choice`."""

    call: int
    ways: Sequence[Way]
    seconds: float


@dataclass(frozen=True, slots=True)
class Pull:
    """See `Agent.begin` and `Transfer.run`; answered by None when it is complete."""

    call: int
    transport: str
    source: Source
    share: Share
    seconds: float


@dataclass(frozen=True, slots=True)
class Abort:
    """See `Transfer.abort`, of the pull with this number."""

    call: int


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a rank."""

    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a call."""

    call: int
    result: Source | Choice | Failure | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an offer."""

    call: int
    error: Failure | None


Request = Offer | Withdraw | Choose | Pull | Abort
Reply = Hello | Answer | Ended
