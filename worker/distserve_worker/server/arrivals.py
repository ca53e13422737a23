"""What the engine thread tells the event loop."""

from dataclasses import dataclass
from multiprocessing.connection import Connection

from distserve_worker.engine.interface import (
    BlockRef,
    Description,
    Dropped,
    Load,
    Parked,
    PutBack,
    Refused,
    Region,
    Starved,
    Token,
)


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is loaded."""

    description: Description
    load: Load
    tokenizer_digest: str
    region: Region  # KV memory of the rank in this process
    transfers: tuple[Connection, ...]  # to the agents of all other ranks


@dataclass(frozen=True, slots=True)
class Admission:
    """Answer to an admission; `refusal` when the engine does not take the work."""

    key: str
    refusal: Refused | None


@dataclass(frozen=True, slots=True)
class Begun:
    """A prompt is computed from now on, the time being in time.monotonic seconds; see `Started` for the rest."""

    key: str
    cached_tokens: int
    time: float


@dataclass(frozen=True, slots=True)
class Exported:
    """Prefill is over and the parked blocks are pinned for readers until the request is dropped."""

    parked: Parked


@dataclass(frozen=True, slots=True)
class Target:
    """A decode request got its blocks, which are to be filled on every rank."""

    key: str
    blocks: tuple[BlockRef, ...]


Arrival = Admission | Begun | Token | Exported | Target | PutBack | Dropped | Starved


@dataclass(frozen=True, slots=True)
class Step:
    """When a step ran, in time.monotonic seconds."""

    started: float
    ended: float


@dataclass(frozen=True, slots=True)
class Batch:
    """All that happened since the last one; `step` is absent when only commands ran."""

    arrivals: tuple[Arrival, ...]
    load: Load
    step: Step | None = None
