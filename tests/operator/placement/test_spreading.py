"""The network links of a fleet: as many as its instances can spread over, and never fewer where there is more room."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from distserve_testing.questions import question
from hypothesis import assume, given
from hypothesis import strategies as st

from distserve_operator.placement.device import Inventory
from distserve_operator.placement.search.cells import bounded
from distserve_operator.placement.serving import link_of
from distserve_operator.placement.shape import Disaggregated, Pool, Shape
from distserve_operator.placement.spreading import network_links

GIGABYTE = 1e9
ASKED = question(network_bytes_per_second=GIGABYTE)
POOLS = st.builds(
    Pool, st.builds(Shape, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 3, 5])), st.integers(1, 9)
)
NODES = st.lists(st.integers(1, 9), min_size=2, max_size=6)


def speed(free: tuple[int, ...], placement: Disaggregated, whole: bool = False) -> float:
    link = link_of(replace(ASKED, inventory=Inventory(free, sum(free), whole)), placement)
    assert link.name == "network"
    return link.bytes_per_second / GIGABYTE


def pair(prefill: str, decode: str) -> Disaggregated:
    return Disaggregated(pool(prefill), pool(decode))


def pool(text: str) -> Pool:
    """Written as replicas x tp x pp."""
    replicas, tp, pp = map(int, text.split("x"))
    return Pool(Shape(tp, pp), replicas)


@given(
    prefill=POOLS,
    decode=POOLS,
    nodes=NODES,
    more=st.lists(st.integers(0, 9), min_size=6, max_size=9),
    whole=st.booleans(),
)
def test_the_link_of_a_placement_never_slows_when_devices_or_nodes_are_added(
    prefill: Pool, decode: Pool, nodes: list[int], more: list[int], whole: bool
) -> None:
    """B37."""
    fleet = Disaggregated(prefill, decode)
    wider = [free + extra for free, extra in zip(nodes, more, strict=False)] + more[len(nodes) :]
    assert speed(tuple(wider), fleet, whole) >= speed(tuple(nodes), fleet, whole)


@given(prefill=POOLS, decode=POOLS, nodes=NODES, grown=st.booleans())
def test_another_instance_that_leaves_room_never_lowers_what_all_links_carry(
    prefill: Pool, decode: Pool, nodes: list[int], grown: bool
) -> None:
    larger = [Pool(pool.shape, pool.replicas + own) for pool, own in ((prefill, grown), (decode, not grown))]
    wide = Inventory((*nodes, 999, 999), 2000)
    assert network_links(wide, larger) >= network_links(wide, [prefill, decode])


@pytest.mark.parametrize("devices", [4, 5, 6, 8, 64])
def test_one_pair_has_the_whole_link_however_many_devices_a_node_has(devices: int) -> None:
    assert speed((devices, devices), pair("1x1x5", "1x2x1")) == 1.0


@pytest.mark.parametrize(
    ("free", "prefill", "decode", "expected"),
    [
        ((8, 8), "2x1x1", "2x1x1", 1.0),  # one of each on a node
        ((8, 8), "4x1x1", "4x1x1", 0.5),  # two of each
        ((8, 8, 8, 8), "4x1x1", "4x1x1", 1.0),
        ((8, 8), "4x1x1", "1x1x1", 1.0),  # one request moves at once
        ((8, 8, 8), "2x8x1", "8x1x1", 0.5),  # the third node alone has room for decode
        ((9, 9, 9), "2x8x1", "8x1x1", 1.0),
        ((8, 1, 1), "2x4x1", "2x1x1", 0.5),  # one node alone has room for prefill
        ((4, 4), "1x1x4", "1x1x4", 1.0),  # on both nodes, yet with the link of one
    ],
)
def test_requests_that_move_at_once_share_the_links_that_their_instances_have(
    free: tuple[int, ...], prefill: str, decode: str, expected: float
) -> None:
    assert speed(free, pair(prefill, decode)) == pytest.approx(expected)


@given(prefill=POOLS, decode=POOLS, nodes=NODES, devices=st.integers(1, 20), whole=st.booleans())
def test_a_search_of_some_nodes_knows_the_links_of_all(
    prefill: Pool, decode: Pool, nodes: list[int], devices: int, whole: bool
) -> None:
    every = Inventory(tuple(nodes), sum(nodes), whole)
    some = bounded(bounded(every, devices + 8), devices)
    assert network_links(some, [prefill, decode]) == network_links(every, [prefill, decode])


@given(
    nodes=st.lists(st.integers(1, 6), min_size=2, max_size=3),
    wide=st.integers(1, 4),
    narrow=st.integers(1, 4),
    count=st.integers(1, 4),
)
def test_the_narrow_spread_over_every_node_that_the_wide_can_leave_room_on(
    nodes: list[int], wide: int, narrow: int, count: int
) -> None:
    assume(narrow <= wide)
    best = max(
        (
            sum(free - one * wide >= narrow for free, one in zip(nodes, laid, strict=True))
            for laid in _laid(nodes, wide, count)
        ),
        default=0,
    )
    assume(best > 0)
    pools = [Pool(Shape(wide, 1), count), Pool(Shape(narrow, 1), 99)]
    holding = sum(free >= wide for free in nodes)
    assert network_links(Inventory(tuple(nodes), sum(nodes)), pools) == min(best, count, holding)


def _laid(nodes: list[int], size: int, count: int) -> Iterator[tuple[int, ...]]:
    """Every way to lay so many instances on the nodes."""
    if not nodes:
        if count == 0:
            yield ()
        return
    for here in range(min(count, nodes[0] // size) + 1):
        for rest in _laid(nodes[1:], size, count - here):
            yield here, *rest
