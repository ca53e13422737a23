"""What a reader has of one serving rank: a connection and a communicator."""

import logging
from typing import TYPE_CHECKING

from distserve_worker.engine.interface import CHUNK_BYTES
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.limit import Limit
from distserve_worker.transfer.memory.device import DeviceBlocks
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.memory.staging import runs
from distserve_worker.transfer.nccl.first_block import empty_block, has_arrived
from distserve_worker.transfer.nccl.framing import HEADER, HELLO, REQUEST, TAKEN
from distserve_worker.transfer.nccl.identities import Attempts
from distserve_worker.transfer.nccl.pynccl import RECEIVER, Pair, require
from distserve_worker.transfer.tcp.dialing import Dialing

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)


class Link:
    """One transfer after the other, until one fails; only `connection.abort` may come from another thread."""

    def __init__(self, endpoint: str, device: "torch.device", attempts: Attempts, limit: Limit) -> None:
        """Meet that rank and try whether bytes arrive. Raises `TransferError`."""
        attempts.check()
        require()  # seconds when it is the first, which a peer that was greeted would not wait for
        self._endpoint = endpoint
        self._limit = limit
        self._pair: Pair | None = None
        self.connection = Dialing(endpoint, limit.deadline).connect()
        try:
            self._greet()
            with attempts.one() as identities:
                with identities.one() as identity:  # not before somebody is there to meet under it
                    self.connection.send([identity])
                    self._pair = Pair(identity, RECEIVER, device, self._check)
                self._try(self._pair, empty_block(device))
        except BaseException:
            self.close()
            raise

    @property
    def is_over(self) -> bool:
        """Whether the other end has gone."""
        try:
            self.connection.check_open()
        except TransferError:
            return True
        return False

    def pull(self, source: Source, selection: Selection, limit: Limit) -> None:
        """Raises `TransferError`; then, unless it was refused, nothing can go over this link any more."""
        assert self._pair is not None, "it has met"
        self._limit = limit
        self.connection.extend(limit.deadline)
        self._ask(source, selection)
        self._receive(self._pair, selection)
        self.connection.send([TAKEN])

    def close(self) -> None:
        """End both; the reason why is told elsewhere."""
        self.connection.close()
        if self._pair is None:
            return
        try:
            self._pair.abort()
        except TransferError as error:
            log.warning("%s", error)

    def _greet(self) -> None:
        self.connection.send([HELLO])
        if self.connection.receive(len(HELLO)) != HELLO:
            raise TransferError(Fault.MISMATCH, f"{self._endpoint} does not speak this version of the protocol")

    def _try(self, pair: Pair, block: Selection) -> None:
        self._receive(pair, block)
        if not has_arrived(block):
            raise TransferError(Fault.MISMATCH, f"{self._endpoint}: other bytes arrive over NCCL than were sent")

    def _ask(self, source: Source, selection: Selection) -> None:
        self.connection.send([REQUEST.pack(source.ticket)])
        found, blocks, nbytes = HEADER.unpack(self.connection.receive(HEADER.size))
        if not found:
            raise TransferError(Fault.REFUSED, f"{source.endpoint} does not know the ticket, or not any more")
        if (blocks, nbytes) != (len(selection.blocks), selection.nbytes):
            text = f"offered {blocks} blocks, {nbytes} bytes; needed {len(selection.blocks)}, {selection.nbytes}"
            raise TransferError(Fault.MISMATCH, text)

    def _receive(self, pair: Pair, selection: Selection) -> None:
        with DeviceBlocks(selection) as target:
            for run in runs(selection, CHUNK_BYTES):
                self._receive_run(pair, target, run)

    def _receive_run(self, pair: Pair, target: DeviceBlocks, run: slice) -> None:
        """A function of its own, so that its memory is let go of before there is more for the next run."""
        room = target.room(run)
        pair.wait_for(target.stream)
        pair.receive(room, self._check)
        pair.wait(self._check)
        target.scatter(run, room)
        target.wait(self._limit.check)

    def _check(self) -> None:
        self._limit.check()
        self.connection.check_open()
