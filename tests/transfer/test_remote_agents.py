"""The agent of a rank in another process is as good as one in this process, and ends with it."""

import contextlib
import multiprocessing
import threading

import pytest
import torch
from distserve_testing.agent_process import Memory, rank_process
from distserve_testing.endings import Ending
from distserve_testing.regions import content

from distserve_proto.addresses import format_address
from distserve_worker.engine.interface import KvLayout, KvShard
from distserve_worker.transfer.agent import Choice, Share
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.opening import open_pulling_agent
from distserve_worker.transfer.remote.agent import RemoteAgent
from distserve_worker.transfer.remote.messages import Choose
from distserve_worker.transfer.remote.serving import serve_agent

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="BF16")
WHOLE = KvShard(0, 2, 0, 2)
SECONDS = 20.0


def test_two_ranks_in_their_own_processes_move_blocks_between_them() -> None:
    """B14: what the second one got is read back from it by a third pull."""
    memories = [Memory(LAYOUT, 6, WHOLE, seed) for seed in (1, 2)]
    share, later = Share((5, 0), WHOLE), Share((2, 3), WHOLE)
    with rank_process(memories[0]) as first, rank_process(memories[1]) as second:
        name = second.agent.choose(first.agent.ways, SECONDS).transport
        assert name == "shm"
        ending = Ending()
        source = first.agent.offer(name, share, SECONDS, ending)
        second.agent.begin(name, source, later, SECONDS).run()
        first.agent.withdraw(name, source.ticket)
        assert ending.wait() is None
        with pytest.raises(TransferError) as refusal:
            second.agent.begin(name, source, later, SECONDS).run()
        assert refusal.value.fault is Fault.REFUSED
        assert first.agent.choose(second.agent.ways, SECONDS) == Choice("shm")
        back = second.agent.offer("tcp", later, SECONDS, Ending())
        first.agent.begin("tcp", back, Share((1, 2), WHOLE), SECONDS).run()
        again = first.agent.offer("tcp", Share((1, 2), WHOLE), SECONDS, Ending())
        ours = memories[1].region()
        reader = open_pulling_agent(ours)
        reader.begin("tcp", again, later, SECONDS).run()
    expected = content(Selection(memories[0].region(), share.blocks, WHOLE))
    assert torch.equal(content(Selection(ours, later.blocks, WHOLE)), expected)


@pytest.mark.parametrize("end", ["killed", "aborted"])
def test_a_pull_in_another_process_can_be_ended(end: str) -> None:
    """B3, B5: its sender never sends; the rank dies, or the pull is not needed any more."""
    with rank_process(Memory(LAYOUT, 6, WHOLE, 1)) as rank, listen("127.0.0.1", 0) as listener:
        source = Source(format_address("127.0.0.1", listener.getsockname()[1]), bytes(32), 2 * LAYOUT.block_bytes)
        transfer = rank.agent.begin("tcp", source, Share((0, 1), WHOLE), SECONDS)
        faults: list[Fault] = []

        def run() -> None:
            try:
                transfer.run()
            except TransferError as error:
                faults.append(error.fault)

        thread = threading.Thread(target=run)
        thread.start()
        sender, _ = listener.accept()
        with sender:
            if end == "killed":
                rank.kill()
            else:
                transfer.abort()
            thread.join(SECONDS)
        assert faults == [Fault.CLOSED if end == "killed" else Fault.ABORTED]


def test_a_rank_that_is_gone_before_its_first_word_is_an_error() -> None:
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    with pytest.raises(TransferError) as error:
        RemoteAgent(ours)
    assert error.value.fault is Fault.CLOSED
    ours.close()


def test_a_driver_that_reads_nothing_any_more_is_cut_off() -> None:
    """B3: a lost word on the end of an offer would pin its blocks for good."""
    ours, theirs = multiprocessing.Pipe()
    agent = open_pulling_agent(Memory(LAYOUT, 6, WHOLE, 1).region())
    thread = threading.Thread(target=serve_agent, args=(theirs, agent))
    thread.start()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for number in range(50_000):
            ours.send(Choose(number, (), SECONDS))
    thread.join(SECONDS)
    assert not thread.is_alive()
    ours.close()
