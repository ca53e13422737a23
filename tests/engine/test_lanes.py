"""Order and block tables of the running requests of a lane."""

from distserve_worker.engine.execution.batch import Written
from distserve_worker.engine.interface import Description, KvLayout, KvShard, Work
from distserve_worker.engine.lanes import Lane
from distserve_worker.engine.request import Request, admitted
from distserve_worker.engine.scheduling.blocks import BlockManager

DESCRIPTION = Description(KvLayout(1, 1, 2, 16, "FP32"), (KvShard(0, 1, 0, 1),), "digest", "FP32", 400, 400)


def held(blocks: BlockManager, request_id: str, tokens: int) -> Request:
    request = admitted(Work(request_id, (1,) * tokens), DESCRIPTION, 10)
    blocks.allocate(request_id, blocks.blocks_for(tokens))
    return request


def test_only_what_is_new_in_a_table_is_told() -> None:
    blocks = BlockManager(20, 16)
    long, short = held(blocks, "long", 40), held(blocks, "short", 15)
    lane = Lane(3)
    first = lane.arranged((long, short), blocks)
    assert (first.lane, first.positions, lane.members) == (3, (14, 39), (short, long))
    assert {len(written.blocks) for written in first.written} == {1, 3}
    for request in (long, short):
        request.append(5)
    second = lane.arranged((long, short), blocks)
    assert (second.tokens, second.positions, second.written) == ((5, 5), (15, 40), ())
    grown = blocks.grow("short")
    assert lane.arranged((long, short), blocks).written == (Written(first.seats[0], 1, (grown.index,)),)


def test_a_seat_that_is_taken_again_is_told_anew() -> None:
    blocks = BlockManager(20, 16)
    one, other = held(blocks, "one", 20), held(blocks, "other", 20)
    lane = Lane(0)
    (seat,) = lane.arranged((one,), blocks).seats
    again = lane.arranged((other,), blocks)
    assert again.seats == (seat,)
    assert [(written.first, len(written.blocks)) for written in again.written] == [(0, 2)]


def test_a_request_that_was_computed_again_between_two_steps_takes_its_new_place() -> None:
    blocks = BlockManager(20, 16)
    one, other = held(blocks, "one", 20), held(blocks, "other", 20)
    lane = Lane(0)
    lane.arranged((one, other), blocks)
    blocks.free("one")
    one.append(5)
    blocks.allocate("one", 2)
    arranged = lane.arranged((one, other), blocks)
    assert (arranged.positions, lane.members) == ((19, 20), (other, one))
    (written,) = arranged.written
    assert written.blocks == tuple(block.index for block in blocks.blocks_of("one"))
