"""Shapes of a fleet: parallelism, count and step sizes of the instances of each role."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from distserve_proto.contract import Role


@dataclass(frozen=True, slots=True)
class Shape:
    """Instances of one role.

    `max_batch_tokens`: new tokens of a prefill batch (L_m); None: the worker's default. `chunk_tokens`: of a step in
    which a colocated instance mixes prompts and outputs; None: prompts go first.
    """

    tp: int
    pp: int
    replicas: int
    max_batch_tokens: int | None = None
    chunk_tokens: int | None = None

    @property
    def devices_per_instance(self) -> int:
        """Devices of one instance."""
        return self.tp * self.pp

    @property
    def devices(self) -> int:
        """Devices of all instances."""
        return self.devices_per_instance * self.replicas

    def __str__(self) -> str:
        stages = f"PP{self.pp}" if self.pp > 1 else ""
        return f"{self.replicas}xTP{self.tp}{stages}"


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """Prefill and decode on instances of their own."""

    prefill: Shape
    decode: Shape

    @property
    def shapes(self) -> Mapping[Role, Shape]:
        """By role, in the order in which they are renewed."""
        return {Role.PREFILL: self.prefill, Role.DECODE: self.decode}

    @property
    def devices(self) -> int:
        """Devices of the whole fleet."""
        return self.prefill.devices + self.decode.devices

    def __str__(self) -> str:
        return f"{self.prefill} -> {self.decode}"


@dataclass(frozen=True, slots=True)
class Colocated:
    """Both phases on the same instances."""

    shape: Shape

    @property
    def shapes(self) -> Mapping[Role, Shape]:
        """By role."""
        return {Role.COLOCATED: self.shape}

    @property
    def devices(self) -> int:
        """Devices of the whole fleet."""
        return self.shape.devices

    def __str__(self) -> str:
        chunks = self.shape.chunk_tokens
        return f"{self.shape} colocated" + ("" if chunks is None else f", chunks of {chunks}")


Placement = Disaggregated | Colocated


def can_serve(roles: Collection[str]) -> bool:
    """Whether instances of these roles can answer a request between them."""
    return Role.COLOCATED in roles or {Role.PREFILL, Role.DECODE} <= set(roles)
