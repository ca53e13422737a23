"""The process of a rank that takes no requests: loads its part, then computes what the driver sends."""

import contextlib
import logging
import os
import signal
import threading
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Final

from distserve_proto.contract import ExitReason
from distserve_worker.engine.interface import Region
from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.faults import failure_of, faults
from distserve_worker.server.pinning import pin_torch
from distserve_worker.server.ranks.messages import Assignment, Fault, Loaded, Meet, Met, Progress
from distserve_worker.transfer.agent import Agent
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.opening import open_agent, open_pulling_agent
from distserve_worker.transfer.remote.serving import serve_agent
from distserve_worker.unforeseen import described

log = logging.getLogger(__name__)

WITHOUT_DRIVER: Final = 3  # exit status
WITHOUT_PEER: Final = 4  # another rank has gone first: it knows the reason


class ProgressTeller:
    """Tells the driver of every hundredth of the weights.

    Not of every weight: who reads it shares an interpreter with the thread that loads the driver's own part, and a pipe
    holds some hundred messages, after which the rank would wait.
    """

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._told = -1

    def __call__(self, share: float) -> None:
        """So much is read, from 0 to 1."""
        hundredths = int(share * 100)
        if hundredths > self._told:
            self._told = hundredths
            self._control.send(Progress(share))


class _PeerGone(Exception):  # noqa: N818 - named after what happened
    """An exchange broke off; whose fault it was shows elsewhere."""


def main(assignment: Assignment, control: Connection, batches: Connection, transfers: Connection) -> None:
    """Run until the driver is gone; what goes wrong before is told to it."""
    _die_with_driver()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the driver drains first, and takes this process with it
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s rank {assignment.rank}: %(message)s")
    status = WITHOUT_DRIVER
    try:
        _serve(assignment, control, batches, transfers)
    except _PeerGone as error:
        log.warning("%s", error)
        with contextlib.suppress(OSError):  # what it heard counts when no rank knows more
            control.send(Fault(ExitReason.ENGINE_FAILED, str(error)))
        status = WITHOUT_PEER
    except WorkerFailure as failure:
        control.send(Fault(failure.reason, failure.text))
    except (EOFError, BrokenPipeError):
        pass
    except Exception as error:
        log.exception("the rank failed")
        found = failure_of(error)
        control.send(Fault(found.reason, found.text))
    logging.shutdown()
    os._exit(status)  # other threads may be inside anything


def _serve(assignment: Assignment, control: Connection, batches: Connection, transfers: Connection) -> None:
    # imported here: the process is there at once, and torch is read while others of the instance read it too
    from distserve_worker.engine.building import build_rank
    from distserve_worker.engine.execution.collectives import Meeting, PeerLost
    from distserve_worker.engine.execution.executor import Follower

    pin_torch(assignment.threads)
    blueprint = assignment.blueprint
    meeting = Meeting(blueprint.grid, assignment.rank)

    with faults(str(blueprint.config.model)):
        built = build_rank(blueprint, assignment.rank, meeting.collective, ProgressTeller(control))
    moving = (assignment, built.region, control, transfers)
    threading.Thread(target=_move_kv, args=moving, name="kv", daemon=True).start()
    control.send(Loaded())
    meet = control.recv()
    assert isinstance(meet, Meet), f"the driver said {meet}"
    try:
        meeting.join(meet.port, built.rank.memory.device)
        control.send(Met())
        Follower(built.rank, batches, meeting.pipe, blueprint.model.hidden).run()
    except PeerLost as error:
        raise _PeerGone(str(error)) from error


def _move_kv(assignment: Assignment, region: Region, control: Connection, transfers: Connection) -> None:
    """Do what the driver says about the rank's KV memory. A colocated instance moves none.

    When that ends, so does the process: the instance could not move KV any more. And the driver hangs up on a rank
    whose transfer did not end in time: what is left of it could still write to blocks that others have by then.
    """
    if assignment.blueprint.config.role == "colocated":
        return
    text = "the driver has hung up on its transports"
    try:
        serve_agent(transfers, _agent(assignment, region))
    except Exception as error:
        log.exception("the transports failed")
        text = f"its transports failed: {described(error)}"
    with contextlib.suppress(OSError):  # the driver is gone
        control.send(Fault(ExitReason.ENGINE_FAILED, text))
    os._exit(WITHOUT_DRIVER)


def _agent(assignment: Assignment, region: Region) -> Agent:
    if assignment.blueprint.config.role == "decode":
        return open_pulling_agent(region)
    return open_agent(region, listen(assignment.host, 0), assignment.advertise_host)


def _die_with_driver() -> None:
    """However the driver ends, also while this process is inside a step."""
    parent = parent_process()
    assert parent is not None, "a rank is started by its driver"

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(WITHOUT_DRIVER)

    threading.Thread(target=watch, name="driver-watch", daemon=True).start()
