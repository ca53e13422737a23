"""What differs between a prefill and a decode worker, as one interface: two twins implement it."""

from typing import Protocol

from distserve_proto import worker_pb2
from distserve_worker.server.arrivals import Exported, Step, Target
from distserve_worker.server.legs import Leg


class Side(Protocol):
    """Used on the event loop only."""

    @property
    def phase(self) -> worker_pb2.Phase.ValueType:
        """The phase it serves."""
        ...

    def is_counted_on(self, submit: worker_pb2.Submit) -> bool:
        """Whether its gateway may have begun this request in the trust that this worker goes on with it."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a transfer still holds memory of a leg that has ended."""
        ...

    def objection(self, submit: worker_pb2.Submit) -> str | None:
        """Why a submission makes no sense here, naming field and value; None when it does."""
        ...

    def begin(self, leg: Leg, submit: worker_pb2.Submit) -> None:
        """A leg is on its way to the engine."""
        ...

    def clock(self, leg: Leg, step: Step) -> None:
        """A step gave the leg a token: note its stage times."""
        ...

    def take(self, leg: Leg, arrival: Exported | Target) -> None:
        """The engine shows memory of the leg: to be read by others, or to be filled."""
        ...

    def drop(self, key: str) -> None:
        """Free all that a leg holds, as soon as no transfer touches its memory."""
        ...
