"""What a rank's process and the driver tell each other besides batches and transfers."""

from dataclasses import dataclass

from distserve_proto.contract import ExitReason
from distserve_worker.engine.blueprint import Blueprint


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a rank is told at its start."""

    blueprint: Blueprint
    rank: int
    threads: int
    host: str  # to listen on for readers of its KV, at any free port
    advertise_host: str  # where they find it


@dataclass(frozen=True, slots=True)
class Progress:
    """Share of the rank's weights that are loaded, 0 to 1."""

    share: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """Weights and KV memory are there; the rank waits for `Meet`."""


@dataclass(frozen=True, slots=True)
class Meet:
    """Where the ranks find each other: a store on this machine."""

    port: int


@dataclass(frozen=True, slots=True)
class Met:
    """The rank computes whatever it is sent from now on."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the rank's process ends."""

    reason: ExitReason
    text: str
