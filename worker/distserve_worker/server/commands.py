"""What the event loop asks of the engine thread."""

from dataclasses import dataclass

from distserve_worker.engine.interface import Work


@dataclass(frozen=True, slots=True)
class Admit:
    """Queue a leg; answered by an `Admission`."""

    work: Work


@dataclass(frozen=True, slots=True)
class Drop:
    """Free everything a request holds; nothing reads or writes its memory any more."""

    key: str


@dataclass(frozen=True, slots=True)
class Imported:
    """The memory of a `Target` is filled."""

    key: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the thread."""


Command = Admit | Drop | Imported | Stop
