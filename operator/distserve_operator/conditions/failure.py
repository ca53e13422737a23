"""What could not be done in the last pass, for the conditions."""

from dataclasses import dataclass

from distserve_proto.contract import Role


@dataclass(frozen=True, slots=True)
class Failure:
    """A refused action on an object of `role` (None: of all roles). `permanent`: trying again will not help."""

    role: Role | None
    reason: str
    message: str
    permanent: bool = False
