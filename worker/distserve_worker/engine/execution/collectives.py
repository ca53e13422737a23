"""What the ranks of an instance say to each other while they compute, through torch.distributed.

On CPUs gloo carries it, and waiting is waiting. On GPUs NCCL does: a call puts an exchange into a stream and returns,
and waiting for one makes the stream of the steps wait, not the caller. The code is the same.
"""

import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from distserve_worker.engine.execution.backends import backend_of, options_of
from distserve_worker.engine.models.interface import Alone, Collective
from distserve_worker.engine.parallel import Grid

_MEETING: Final = timedelta(seconds=120)  # for all ranks to come, and then for each exchange with which they begin
_EXCHANGE: Final = timedelta(minutes=30)  # a dead rank is found by its process; a long prefill is no reason to end
_HERE: Final = "127.0.0.1"
_TAGS: Final = 1 << 16  # gloo's; NCCL keeps the order of each pair
_SETTINGS: Final[Mapping[str, str]] = {
    "GLOO_SOCKET_IFNAME": "lo",  # the host's name need not mean an address here
    # An exchange whose peer has died never ends on a GPU. Whoever watches the processes ends the instance then, and
    # knows why; torch would end this process before that is told, or let the step go on with whatever is in its memory.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
}


class PeerLost(RuntimeError):  # noqa: N818 - named after what happened
    """An exchange broke off: another rank has gone."""


@contextmanager
def _exchange() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:  # of this rank's own GPU
        raise
    except RuntimeError as error:  # that is all that torch.distributed says
        raise PeerLost(str(error)) from error


class StageCollective:
    """`models.interface.Collective` of the ranks of one stage; usable once they have met."""

    def __init__(self) -> None:
        self.group: dist.ProcessGroup | None = None

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """See `Collective.sum`."""
        with _exchange():
            dist.all_reduce(x, group=self.group)
        return x

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """See `Collective.gather`."""
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(self.group))]
        with _exchange():
            dist.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, dim=-1)

    def met(self, word: torch.Tensor, timeout: timedelta) -> None:
        """As `sum`, but waits until it is done, for so long at most."""
        with _exchange():
            work = dist.all_reduce(word, group=self.group, async_op=True)
            assert work is not None, "this rank belongs to the group"
            work.wait(timeout)


@dataclass(frozen=True, slots=True)
class Incoming:
    """Hidden states on their way to this rank."""

    _work: dist.Work
    _hidden: torch.Tensor

    def wait(self) -> torch.Tensor:
        """[new tokens, hidden], for what is computed from now on."""
        with _exchange():
            self._work.wait()
        return self._hidden

    def met(self, timeout: timedelta) -> torch.Tensor:
        """As `wait`, but waits until they are here, for so long at most."""
        with _exchange():
            self._work.wait(timeout)
        return self._hidden


class StagePipe:
    """Hidden states from a rank to the one with the same tensor rank of the next stage, in order."""

    def __init__(self, grid: Grid, rank: int) -> None:
        self._before, self._after = rank + grid.tp, rank - grid.tp  # counted from the last stage
        self._depth = grid.pp
        self._sent: deque[tuple[dist.Work, torch.Tensor]] = deque()
        self._received_count, self._sent_count = 0, 0

    def expect(self, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Incoming:
        """Make room for the next hidden states, so that they can travel while this rank computes.

        On a GPU they come when the steps that this rank has begun before are done, and beside those that it begins
        afterwards.
        """
        hidden = torch.empty(shape, dtype=dtype, device=device)
        with _exchange():
            work = dist.irecv(hidden, src=self._before, tag=self._received_count % _TAGS)
        assert work is not None, "this rank belongs to the group"
        self._received_count += 1
        return Incoming(work, hidden)

    def send(self, hidden: torch.Tensor) -> None:
        """To the next stage; no more than `depth` are on the way."""
        hidden = hidden.contiguous()
        with _exchange():
            while len(self._sent) >= self._depth:
                self._sent.popleft()[0].wait()
            work = dist.isend(hidden, dst=self._after, tag=self._sent_count % _TAGS)
        assert work is not None, "this rank belongs to the group"
        self._sent_count += 1
        self._sent.append((work, hidden))  # the memory must stay until it is sent


class Meeting:
    """Brings the ranks of an instance on one machine together; one of them hosts it, all of them join."""

    def __init__(self, grid: Grid, rank: int) -> None:
        self._grid = grid
        self._rank = rank
        self._store: TCPStore | None = None
        self._stage = StageCollective()
        self.pipe = StagePipe(grid, rank)

    @property
    def collective(self) -> Collective:
        """Of this rank's stage; usable once they have met."""
        return self._stage if self._grid.tp > 1 else Alone()

    def host(self) -> int:
        """Open the place where they meet; its port."""
        self._store = TCPStore(_HERE, 0, is_master=True, wait_for_workers=False, timeout=_MEETING)
        return self._store.port

    def join(self, port: int, device: torch.device) -> None:
        """Wait for all the others; this rank computes on `device`.

        Raises `PeerLost` when they do not come, and `RuntimeError` when they come and do not understand each other.
        """
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        with _exchange():
            self._make_groups(self._store or TCPStore(_HERE, port, is_master=False, timeout=_MEETING), device.type)
            heard = self._connected(device)
        if heard != self._grid.tp:
            raise RuntimeError(f"{self._grid.tp} ranks that say 1 hear {heard:g} over {dist.get_backend()}")

    def _make_groups(self, store: TCPStore, kind: str) -> None:
        """Of all ranks, and of those of each stage, when all are there."""
        grid, backend = self._grid, backend_of(kind)
        store.set(_here(self._rank), "")
        store.wait([_here(rank) for rank in range(grid.ranks)], _MEETING)
        # Without a device id: with one, all pairs of ranks would share one communicator and wait for each other.
        dist.init_process_group(
            backend,
            store=store,
            rank=self._rank,
            world_size=grid.ranks,
            timeout=_EXCHANGE,
            pg_options=options_of(kind, _EXCHANGE),
        )
        for first in range(0, grid.ranks, grid.tp):
            members = list(range(first, first + grid.tp))
            group = dist.new_group(members, timeout=_EXCHANGE, pg_options=options_of(kind, _EXCHANGE))
            if isinstance(group, dist.ProcessGroup):  # others get a number
                self._stage.group = group

    def _connected(self, device: torch.device) -> float:
        """Use every way once, from the first stage to the last; what the ranks of this stage say together.

        NCCL connects two ranks when they first have something to say, and both have to be there: now they are, the
        first request need not wait for it, and what cannot work is known before anybody counts on this instance.
        """
        grid, behind = self._grid, self._rank // self._grid.tp  # stages behind this one
        word = torch.ones((1, 1), device=device)
        if behind < grid.pp - 1:
            word = self.pipe.expect((1, 1), word.dtype, device).met(_MEETING)
        heard = word.clone()
        if grid.tp > 1:
            self._stage.met(heard, _MEETING)
        if behind > 0:
            self.pipe.send(word)
        return float(heard)


def _here(rank: int) -> str:
    return f"rank {rank} is here"
