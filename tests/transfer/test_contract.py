"""What every transport promises, between two processes: the right bytes for one ticket, once, in time, or an error."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest
import torch
from distserve_testing.agent_process import MAX_TRANSFERS, Memory, RankProcess, rank_process
from distserve_testing.endings import Ending
from distserve_testing.regions import content

from distserve_worker.engine.interface import KvLayout, KvShard
from distserve_worker.transfer.agent import Share, Way
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.nccl import pynccl
from distserve_worker.transfer.opening import open_pulling_agent

LAYOUT = KvLayout(layers=4, kv_heads=4, head_dim=16, block_tokens=16, dtype="FP32")
BLOCKS = 20
WHOLE = KvShard(0, 4, 0, 4)
SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Ends:
    """A rank that serves in its own process over one transport, and a rank here that pulls from it."""

    transport: str
    memory: Memory
    rank: RankProcess

    def reader(self, shard: KvShard = WHOLE) -> "Reader":
        region = replace(self.memory, shard=shard, seed=99).region()
        reader = Reader(self, Selection(region, tuple(range(region.blocks)), shard))
        assert reader.agent.choose(self.ways, SECONDS).transport == self.transport
        return reader

    @property
    def ways(self) -> list[Way]:
        return [way for way in self.rank.agent.ways if way.transport == self.transport]

    def offer(self, share: Share, seconds: float = SECONDS) -> tuple[Source, Ending]:
        ending = Ending()
        return self.rank.agent.offer(self.transport, share, seconds, ending), ending

    def withdraw(self, source: Source) -> None:
        self.rank.agent.withdraw(self.transport, source.ticket)

    def expected(self, share: Share) -> torch.Tensor:
        return content(Selection(self.memory.region(), share.blocks, share.part))


class Reader:
    """The pulling rank; its memory is random too."""

    def __init__(self, ends: Ends, everything: Selection) -> None:
        self.ends = ends
        self.region = everything.region
        self.agent = open_pulling_agent(self.region)

    def pull(self, source: Source, share: Share) -> None:
        self.agent.begin(self.ends.transport, source, share, SECONDS).run()

    def close(self) -> None:
        self.agent.close()

    def fault(self, source: Source, share: Share) -> Fault:
        with pytest.raises(TransferError) as error:
            self.pull(source, share)
        return error.value.fault

    def content(self, share: Share) -> torch.Tensor:
        return content(Selection(self.region, share.blocks, share.part))


def _device(transport: str) -> str:
    if transport in {"tcp", "shm"}:
        return "cpu"
    if not torch.cuda.is_available():
        pytest.skip(f"{transport} needs a machine with a GPU")
    if transport == "nccl" and not pynccl.is_installed():
        pytest.skip("nccl needs the extra gpu: nccl4py is not installed")
    return "cuda"


@pytest.fixture(scope="module", params=["tcp", "shm", "cuda_ipc", "nccl"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    memory = Memory(LAYOUT, BLOCKS, WHOLE, 1, _device(request.param))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCCL_HOSTID", "reader")  # two ranks on one GPU count as two pods
        patch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
        with rank_process(memory) as rank:
            yield Ends(request.param, memory, rank)


@pytest.fixture
def reader(ends: Ends) -> Iterator[Reader]:
    with contextlib.closing(ends.reader()) as opened:
        yield opened


SHARE = Share((3, 11, 4), WHOLE)
OTHER = Share((0, 1, 2), WHOLE)


@pytest.mark.parametrize("count", [1, 7, 20])
def test_the_reader_has_exactly_what_was_offered(ends: Ends, reader: Reader, count: int) -> None:
    offered, wanted = Share(tuple(reversed(range(count))), WHOLE), Share(tuple(range(20 - count, 20)), WHOLE)
    source, ending = ends.offer(offered)
    assert source.nbytes == count * LAYOUT.block_bytes
    reader.pull(source, wanted)
    if ends.transport in {"tcp", "nccl"}:  # their serving side sees the end by itself, a little later
        ending.wait()
    ends.withdraw(source)
    assert ending.wait() is None
    assert torch.equal(reader.content(wanted), ends.expected(offered))


@pytest.mark.parametrize("part", [KvShard(0, 4, 1, 1), KvShard(1, 2, 0, 4), KvShard(2, 1, 1, 2)])
@pytest.mark.parametrize("shard", [WHOLE, KvShard(1, 2, 0, 4), KvShard(0, 4, 1, 2)])
def test_a_part_goes_between_blocks_of_different_shapes(ends: Ends, part: KvShard, shard: KvShard) -> None:
    """B14: and nothing beside it is written."""
    layers = range(max(part.first_layer, shard.first_layer), min(part.end_layer, shard.end_layer))
    heads = range(max(part.first_head, shard.first_head), min(part.end_head, shard.end_head))
    common = KvShard(layers.start, len(layers), heads.start, len(heads))
    offered, wanted = Share(SHARE.blocks, common), Share((0, 9, 2), common)
    expected = replace(ends.memory, shard=shard, seed=99).region()
    view = expected.memory.view(-1, shard.layers, 2, shard.heads, LAYOUT.head_bytes)
    at = slice(common.first_head - shard.first_head, common.end_head - shard.first_head)
    for layer in layers:
        view[list(wanted.blocks), layer - shard.first_layer, :, at] = ends.expected(offered)[:, layer - layers.start]
    source, _ = ends.offer(offered)
    with contextlib.closing(ends.reader(shard)) as reader:
        reader.pull(source, wanted)
        ends.withdraw(source)
        assert torch.equal(reader.region.memory, expected.memory)


def test_pulls_run_side_by_side(ends: Ends, reader: Reader) -> None:
    shares = [Share(tuple(range(first, first + 5)), WHOLE) for first in range(0, 20, 5)]
    sources = [ends.offer(share)[0] for share in shares]
    threads = [threading.Thread(target=reader.pull, args=pair) for pair in zip(sources, reversed(shares), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    for offered, wanted, source in zip(shares, reversed(shares), sources, strict=True):
        assert torch.equal(reader.content(wanted), ends.expected(offered))
        ends.withdraw(source)


def test_a_ticket_is_good_for_one_pull(ends: Ends, reader: Reader) -> None:
    """B7."""
    source, _ = ends.offer(SHARE)
    reader.pull(source, SHARE)
    before = reader.content(OTHER)
    assert reader.fault(source, OTHER) is Fault.REFUSED
    assert torch.equal(reader.content(OTHER), before)
    ends.withdraw(source)


def test_a_wrong_ticket_reads_nothing_and_leaves_the_right_one_alone(ends: Ends, reader: Reader) -> None:
    """B7."""
    source, _ = ends.offer(SHARE)
    before = reader.content(SHARE)
    assert reader.fault(replace(source, ticket=bytes(len(source.ticket))), SHARE) is Fault.REFUSED
    assert reader.fault(replace(source, ticket=b"x" * len(source.ticket)), SHARE) is Fault.REFUSED
    assert torch.equal(reader.content(SHARE), before)
    reader.pull(source, SHARE)
    assert torch.equal(reader.content(SHARE), ends.expected(SHARE))
    ends.withdraw(source)


def test_an_offer_whose_time_is_over_is_refused(ends: Ends, reader: Reader) -> None:
    """B6."""
    source, ending = ends.offer(SHARE, seconds=-1)
    before = reader.content(SHARE)
    assert reader.fault(source, SHARE) is Fault.REFUSED
    ends.withdraw(source)
    assert ending.wait() is not None
    assert torch.equal(reader.content(SHARE), before)


def test_a_withdrawn_offer_is_refused(ends: Ends, reader: Reader) -> None:
    """B5, B6."""
    source, ending = ends.offer(SHARE)
    ends.withdraw(source)
    assert ending.wait() is not None
    before = reader.content(SHARE)
    assert reader.fault(source, SHARE) is Fault.REFUSED
    assert torch.equal(reader.content(SHARE), before)


@pytest.mark.parametrize(
    "wanted", [Share((1, 2), WHOLE), Share((1, 2, 3, 5), WHOLE), Share(SHARE.blocks, KvShard(0, 4, 0, 3))]
)
def test_another_size_than_offered_is_never_filled(ends: Ends, reader: Reader, wanted: Share) -> None:
    """B4: whether the source tells its size or lies about it."""
    before = reader.region.memory.clone()
    needed = Selection(reader.region, wanted.blocks, wanted.part).nbytes
    for nbytes in (None, needed):
        source, _ = ends.offer(SHARE)
        told = source if nbytes is None else replace(source, nbytes=nbytes)
        assert reader.fault(told, wanted) is Fault.MISMATCH
        ends.withdraw(source)
    assert torch.equal(reader.region.memory, before)


def test_what_the_rank_does_not_have_is_refused(ends: Ends, reader: Reader) -> None:
    for share in (Share((BLOCKS,), WHOLE), Share((0,), KvShard(0, 5, 0, 4)), Share((), WHOLE)):
        with pytest.raises(TransferError) as error:
            ends.offer(share)
        assert error.value.fault is Fault.REFUSED
        assert reader.fault(Source("", b"", 0), share) is Fault.REFUSED
    with pytest.raises(TransferError, match="telepathy"):
        ends.rank.agent.offer("telepathy", SHARE, SECONDS, Ending())


def test_an_aborted_pull_ends_as_such(ends: Ends, reader: Reader) -> None:
    """B5."""
    source, _ = ends.offer(SHARE)
    transfer = reader.agent.begin(ends.transport, source, SHARE, SECONDS)
    transfer.abort()
    with pytest.raises(TransferError) as error:
        transfer.run()
    assert error.value.fault is Fault.ABORTED
    ends.withdraw(source)


def test_a_pull_after_its_deadline_does_not_begin(ends: Ends, reader: Reader) -> None:
    source, _ = ends.offer(SHARE)
    with pytest.raises(TransferError) as error:
        reader.agent.begin(ends.transport, source, SHARE, -1.0).run()
    assert error.value.fault is Fault.STALLED
    ends.withdraw(source)


def test_offers_are_bounded_and_make_room_when_they_end(ends: Ends) -> None:
    offers = [ends.offer(SHARE) for _ in range(MAX_TRANSFERS)]
    assert len({source.ticket for source, _ in offers}) == MAX_TRANSFERS
    with pytest.raises(TransferError) as error:
        ends.offer(SHARE)
    assert error.value.fault is Fault.BUSY
    for source, ending in offers:
        ends.withdraw(source)
        ending.wait()
    source, ending = ends.offer(SHARE)
    ends.withdraw(source)
    ending.wait()


def test_a_probe_of_nobody_does_not_work(ends: Ends, reader: Reader) -> None:
    (way,) = ends.ways
    for probe in (b"", b"{}", b"\xff", way.probe.replace(b"1", b"2").replace(b"distserve", b"nobody")):
        assert reader.agent.choose([Way(ends.transport, probe)], 2.0).transport is None


def test_a_rank_that_is_killed_ends_its_offers_and_all_that_comes_later(ends: Ends) -> None:
    """B3: within a second, with a typed error."""
    with ExitStack() as stack:
        rank = stack.enter_context(rank_process(ends.memory))
        doomed = replace(ends, rank=rank)
        reader = doomed.reader()
        _, ending = doomed.offer(SHARE)
        rank.kill()
        error = ending.wait()
        assert error is not None
        assert error.fault is Fault.CLOSED
        with pytest.raises(TransferError, match="gone"):
            doomed.offer(SHARE)
        fresh = open_pulling_agent(reader.region)
        assert fresh.choose(doomed.ways, 2.0).transport is None
        fresh.close()
        reader.agent.close()
