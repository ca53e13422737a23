"""All ends of all transports of one rank: what a server knows of how KV moves."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from distserve_worker.engine.interface import KvShard, Region
from distserve_worker.transfer.interface import Ended, Fault, Pulling, Serving, Source, Transfer, TransferError
from distserve_worker.transfer.memory.selection import Selection

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to a rank's memory, with what a reader needs for trying whether it really is one."""

    transport: str
    probe: bytes


@dataclass(frozen=True, slots=True)
class Passed:
    """A way that may be one, and could not be had this time."""

    way: Way
    reason: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What came of trying ways: the transport of the first that works, if any does, and those that failed before it.

    A way that plainly leads elsewhere, like the memory of another pod, is not among the latter.
    """

    transport: str | None
    passed: tuple[Passed, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """The part of some blocks (indices) that one transfer moves, in the memory of one rank."""

    blocks: tuple[int, ...]
    part: KvShard


class Agent(Protocol):
    """The ends of one rank, in whichever process; methods may be called from any thread.

    `offer`, `choose` and `Transfer.run` may block, for as long as they are told at most; nothing else does. Times are
    seconds from now. Whatever can fail raises `TransferError`: CLOSED when the rank is gone, REFUSED for what it does
    not have.
    """

    @property
    def ways(self) -> tuple[Way, ...]:
        """How readers may reach it, best first; constant."""
        ...

    def offer(self, transport: str, share: Share, seconds: float, ended: Ended) -> Source:
        """See `Serving.offer`."""
        ...

    def withdraw(self, transport: str, ticket: bytes) -> None:
        """See `Serving.withdraw`."""
        ...

    def choose(self, ways: Sequence[Way], seconds: float) -> Choice:
        """Try `ways` of another rank one after another, each for `seconds` at most, until one works."""
        ...

    def begin(self, transport: str, source: Source, share: Share, seconds: float) -> Transfer:
        """See `Pulling.begin`; the time begins now."""
        ...

    def close(self) -> None:
        """End everything."""
        ...


class LocalAgent:
    """`Agent` of the rank in this process."""

    def __init__(self, region: Region, servings: Sequence[Serving], pullings: Sequence[Pulling]) -> None:
        """`servings` best first; a way that a peer offers is used when there is a pulling side of that name."""
        self._region = region
        self._servings: Mapping[str, Serving] = {serving.name: serving for serving in servings}
        self._pullings: Mapping[str, Pulling] = {pulling.name: pulling for pulling in pullings}

    @property
    def ways(self) -> tuple[Way, ...]:
        """See `Agent.ways`."""
        return tuple(Way(name, serving.probe) for name, serving in self._servings.items())

    def offer(self, transport: str, share: Share, seconds: float, ended: Ended) -> Source:
        """See `Agent.offer`."""
        serving = self._servings.get(transport)
        if serving is None:
            raise TransferError(Fault.REFUSED, f"transport {transport} is not served here")
        return serving.offer(self._selected(share), time.monotonic() + seconds, ended)

    def withdraw(self, transport: str, ticket: bytes) -> None:
        """See `Agent.withdraw`."""
        self._servings[transport].withdraw(ticket)

    def choose(self, ways: Sequence[Way], seconds: float) -> Choice:
        """See `Agent.choose`."""
        passed: list[Passed] = []
        for way in ways:
            pulling = self._pullings.get(way.transport)
            if pulling is None:
                continue
            works, reason = _tried(pulling, way, seconds)
            if works:
                return Choice(way.transport, tuple(passed))
            if reason is not None:
                passed.append(Passed(way, reason))
        return Choice(None, tuple(passed))

    def begin(self, transport: str, source: Source, share: Share, seconds: float) -> Transfer:
        """See `Agent.begin`."""
        pulling = self._pullings.get(transport)
        if pulling is None:
            raise TransferError(Fault.REFUSED, f"this rank does not pull over {transport}")
        selection = self._selected(share)
        if selection.nbytes != source.nbytes:
            text = f"{source.nbytes} bytes are offered, {selection.nbytes} are needed"
            raise TransferError(Fault.MISMATCH, text)
        return pulling.begin(source, selection, time.monotonic() + seconds)

    def close(self) -> None:
        """See `Agent.close`."""
        for pulling in self._pullings.values():
            pulling.close()
        for serving in self._servings.values():
            serving.close()

    def _selected(self, share: Share) -> Selection:
        try:
            return Selection(self._region, share.blocks, share.part)
        except ValueError as error:
            raise TransferError(Fault.REFUSED, str(error)) from error


def _tried(pulling: Pulling, way: Way, seconds: float) -> tuple[bool, str | None]:
    """Whether it works; what kept it from working, if something did. Whatever is wrong with one way, others remain."""
    deadline = time.monotonic() + seconds
    try:
        if pulling.try_(way.probe, deadline):
            return True, None
    except TransferError as error:
        return False, str(error)
    except Exception as error:
        log.exception("trying %s failed", way.transport)
        return False, repr(error)
    return False, f"no answer within {seconds:g} s" if time.monotonic() >= deadline else None
