"""The colocated side: a leg lasts from its prompt to its last token, and no KV moves."""

from collections.abc import Callable

from distserve_proto import worker_pb2
from distserve_worker.server.arrivals import Exported, Step, Target
from distserve_worker.server.commands import Command, Drop
from distserve_worker.server.legs import Leg


class Colocating:
    """See `Side`."""

    def __init__(self, post: Callable[[Command], None]) -> None:
        self._post = post

    @property
    def phase(self) -> worker_pb2.Phase.ValueType:
        """See `Side.phase`."""
        return worker_pb2.PHASE_COLOCATED

    def is_counted_on(self, submit: worker_pb2.Submit) -> bool:
        """See `Side.is_counted_on`."""
        return bool(submit.output)

    @property
    def busy(self) -> bool:
        """See `Side.busy`."""
        return False

    def objection(self, submit: worker_pb2.Submit) -> str | None:
        """See `Side.objection`."""
        return "kv: a handle is for decode workers, this one serves both phases" if submit.HasField("kv") else None

    def begin(self, leg: Leg, submit: worker_pb2.Submit) -> None:
        """The engine does all that there is to do."""

    def clock(self, leg: Leg, step: Step) -> None:
        """See `Side.clock`; with its first token the leg joins the batch."""
        if leg.joined is None:
            leg.joined = step.ended
            leg.stages.prefill = step.ended - leg.started
            leg.event.joined.CopyFrom(worker_pb2.Joined(stages=leg.stages))
        leg.stages.decode = step.ended - leg.joined

    def take(self, leg: Leg, arrival: Exported | Target) -> None:
        """A colocated engine neither parks nor reserves."""
        raise AssertionError(f"{leg.key}: {arrival} from a colocated engine")

    def drop(self, key: str) -> None:
        """See `Side.drop`."""
        self._post(Drop(key))
