"""Which pair a request goes to."""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from distserve_proto.contract import Role
from distserve_worker.gateway.routing import Candidate, Pair, choose, longest_request, shortage, usable_pairs

IDLE = Candidate(
    instance="",
    role=Role.PREFILL,
    compatibility_key="key",
    max_tokens=100,
    queued_tokens=0,
    requests=0,
    used_blocks=0.0,
    last_turn=0,
)


def prefill(instance: str, key: str = "key", **state: Any) -> Candidate:
    return replace(IDLE, instance=instance, compatibility_key=key, **state)


def decode(instance: str, key: str = "key", used_blocks: float = 0.0, **state: Any) -> Candidate:
    candidate = prefill(instance, key, **state)
    return replace(candidate, role=Role.DECODE, used_blocks=used_blocks)


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        instance=st.uuids().map(str),
        role=st.sampled_from([Role.PREFILL, Role.DECODE]),
        compatibility_key=st.sampled_from(["a", "b"]),
        max_tokens=st.integers(1, 100),
        queued_tokens=st.integers(0, 3),
        requests=st.integers(0, 3),
        used_blocks=st.just(0.0),
        last_turn=st.integers(0, 100),
    ),
    max_size=8,
)


def test_the_shortest_prefill_queue_in_tokens_wins() -> None:
    fleet = [prefill("busy", queued_tokens=9, requests=1), prefill("free", queued_tokens=8, requests=5), decode("d")]
    assert choose(fleet) == Pair("free", "d")


def test_the_decode_instance_with_the_fewest_requests_wins_then_the_one_with_most_memory() -> None:
    few = [decode("many", requests=2), decode("few", requests=1)]
    assert choose([prefill("p"), *few]) == Pair("p", "few")
    even = [decode("full", requests=1, used_blocks=0.9), decode("empty", requests=1, used_blocks=0.1)]
    assert choose([prefill("p"), *even]) == Pair("p", "empty")


@given(candidates=CANDIDATES)
def test_other_weights_never_meet(candidates: list[Candidate]) -> None:
    """B20."""
    keys = {candidate.instance: candidate.compatibility_key for candidate in candidates}
    pair = choose(candidates)
    if pair is not None:
        assert keys[pair.prefill] == keys[pair.decode]


@given(candidates=CANDIDATES)
def test_there_is_a_choice_exactly_when_there_is_a_usable_pair(candidates: list[Candidate]) -> None:
    """B1 and B17."""
    assert (choose(candidates) is None) == (usable_pairs(candidates) == 0) == (longest_request(candidates) is None)


@given(candidates=CANDIDATES, avoided=st.integers(0, 7))
def test_avoided_instances_are_not_chosen(candidates: list[Candidate], avoided: int) -> None:
    """B13."""
    avoid = {candidate.instance for candidate in candidates[:avoided]}
    pair = choose(candidates, avoid)
    if pair is not None:
        assert not {pair.prefill, pair.decode} & avoid


def test_a_short_queue_without_a_partner_does_not_attract_requests() -> None:
    """B20."""
    fleet = [prefill("lonely", "other"), prefill("p", queued_tokens=99), decode("d")]
    assert choose(fleet) == Pair("p", "d")


def test_equal_workers_get_equal_work() -> None:
    """B23."""
    fleet = {worker.instance: worker for worker in (*map(prefill, "abc"), *map(decode, "xyz"))}
    chosen: Counter[str] = Counter()
    for turn in range(1, 301):
        pair = choose(list(fleet.values()))
        assert pair is not None
        for instance in (pair.prefill, pair.decode):
            fleet[instance] = replace(fleet[instance], last_turn=turn)
            chosen[instance] += 1
    assert set(chosen.values()) == {100}


def test_the_length_limit_is_that_of_the_smallest_usable_instance() -> None:
    """B4."""
    fleet = [prefill("p", max_tokens=50), decode("d", max_tokens=40), decode("unusable", "other", max_tokens=1)]
    assert longest_request(fleet) == 40


def test_a_shortage_says_what_is_missing() -> None:
    """B1."""
    assert shortage([prefill("p")]) == "1 prefill and 0 decode instances are ready, at least 1 of each is needed"
    assert shortage([prefill("p"), decode("d", "other")]) == "no prefill and decode instance hold the same weights"
