"""Which pair a request goes to."""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from distserve_proto.contract import Role
from distserve_worker.gateway.routing import (
    Candidate,
    Need,
    choose_decode,
    choose_first,
    free_places,
    longest_request,
    shortage,
    usable_pairs,
)

ANY = Need(1)
IDLE = Candidate(
    instance="",
    incarnation="",
    role=Role.PREFILL,
    compatibility_key="key",
    max_tokens=100,
    queued_tokens=0,
    requests=0,
    parked=0,
    places=None,
    used_blocks=0.0,
    leaving=False,
    last_turn=0,
)


def prefill(instance: str, key: str = "key", **state: Any) -> Candidate:
    return replace(IDLE, instance=instance, incarnation=f"boot of {instance}", compatibility_key=key, **state)


def decode(instance: str, key: str = "key", **state: Any) -> Candidate:
    return prefill(instance, key, role=Role.DECODE, **state)


def name(worker: Candidate | None) -> str | None:
    return None if worker is None else worker.instance


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        instance=st.uuids().map(str),
        incarnation=st.uuids().map(str),
        role=st.sampled_from([Role.PREFILL, Role.DECODE, Role.COLOCATED]),
        compatibility_key=st.sampled_from(["a", "b"]),
        max_tokens=st.integers(1, 100),
        queued_tokens=st.integers(0, 3),
        requests=st.integers(0, 3),
        parked=st.just(0),
        places=st.none(),
        used_blocks=st.just(0.0),
        leaving=st.booleans(),
        last_turn=st.integers(0, 100),
    ),
    max_size=8,
)


def test_the_shortest_prefill_queue_in_tokens_wins() -> None:
    fleet = [prefill("busy", queued_tokens=9, requests=1), prefill("free", queued_tokens=8, requests=5), decode("d")]
    assert name(choose_first(fleet, ANY)) == "free"


def test_the_decode_instance_with_the_fewest_requests_wins_then_the_one_with_most_memory() -> None:
    fleet = [decode("many", requests=2), decode("full", requests=1, used_blocks=0.9), decode("best", requests=1)]
    assert name(choose_decode(fleet, "key", ANY)) == "best"


@given(candidates=CANDIDATES)
def test_other_weights_never_meet(candidates: list[Candidate]) -> None:
    """B20."""
    for key in ("a", "b"):
        chosen = choose_decode(candidates, key, ANY)
        assert chosen is None or chosen.compatibility_key == key


@given(candidates=CANDIDATES)
def test_prefill_is_chosen_exactly_when_there_is_a_usable_pair(candidates: list[Candidate]) -> None:
    """B1 and B17."""
    chosen = choose_first(candidates, ANY)
    assert (chosen is None) == (usable_pairs(candidates) == 0) == (longest_request(candidates) is None)
    if chosen is not None and chosen.role is Role.PREFILL:
        partner = choose_decode(candidates, chosen.compatibility_key, ANY)
        assert partner is not None
        assert not partner.leaving
    assert chosen is None or not chosen.leaving


@given(candidates=CANDIDATES, avoided=st.integers(0, 7))
def test_avoided_incarnations_are_not_chosen(candidates: list[Candidate], avoided: int) -> None:
    """B13."""
    need = Need(1, frozenset(worker.incarnation for worker in candidates[:avoided]))
    chosen = [choose_first(candidates, need), choose_decode(candidates, "a", need)]
    assert not {worker.incarnation for worker in chosen if worker is not None} & need.avoid


def test_a_restarted_worker_is_not_avoided_for_its_former_self() -> None:
    """B8."""
    need = Need(1, frozenset({"boot of p"}))
    assert choose_first([prefill("p"), decode("d")], need) is None
    assert name(choose_first([replace(prefill("p"), incarnation="new"), decode("d")], need)) == "p"


def test_instances_that_cannot_hold_the_request_are_not_chosen() -> None:
    """B4."""
    fleet = [prefill("small", max_tokens=9), prefill("large", max_tokens=10, queued_tokens=99), decode("d")]
    assert name(choose_first(fleet, Need(10))) == "large"
    assert choose_first(fleet, Need(101)) is None


def test_a_short_queue_without_a_partner_does_not_attract_requests() -> None:
    """B20."""
    fleet = [prefill("lonely", "other"), prefill("p", queued_tokens=99), decode("d")]
    assert name(choose_first(fleet, ANY)) == "p"


def test_a_leaving_instance_gets_only_what_has_begun_and_has_no_other_place() -> None:
    """B18 and B27."""
    assert choose_first([prefill("p", leaving=True), decode("d")], ANY) is None
    assert choose_first([prefill("p"), decode("d", leaving=True)], ANY) is None
    begun = Need(1, begun=True)
    assert name(choose_first([prefill("p", leaving=True), prefill("q", queued_tokens=9), decode("d")], begun)) == "q"
    assert name(choose_first([prefill("p", leaving=True), decode("d", leaving=True)], begun)) == "p"
    leaving, staying = decode("leaving", leaving=True), decode("staying", requests=9)
    assert name(choose_decode([leaving, staying], "key", ANY)) == "staying"
    assert name(choose_decode([leaving], "key", ANY)) == "leaving"


def test_equal_workers_get_equal_work() -> None:
    """B23."""
    fleet = {worker.instance: worker for worker in (*map(prefill, "abc"), *map(decode, "xyz"))}
    turns: Counter[str] = Counter()
    for turn in range(1, 301):
        candidates = list(fleet.values())
        for worker in (choose_first(candidates, ANY), choose_decode(candidates, "key", ANY)):
            assert worker is not None
            fleet[worker.instance] = replace(worker, last_turn=turn)
            turns[worker.instance] += 1
    assert set(turns.values()) == {100}


def test_a_colocated_instance_needs_no_partner_and_competes_by_its_queue() -> None:
    both = prefill("both", role=Role.COLOCATED, queued_tokens=5)
    assert name(choose_first([both], ANY)) == "both"
    assert name(choose_first([both, prefill("p", queued_tokens=4), decode("d")], ANY)) == "p"
    assert name(choose_first([both, prefill("p", queued_tokens=6), decode("d")], ANY)) == "both"
    assert usable_pairs([both, prefill("p"), decode("d")]) == 2
    assert choose_decode([both], "key", ANY) is None


def test_free_places_are_those_of_all_decode_instances_that_stay() -> None:
    fleet = [decode("a", places=5, requests=3), decode("b", places=2, requests=9), decode("c", places=7, leaving=True)]
    assert free_places([prefill("p", places=99), *fleet], "key") == 2
    assert free_places([*fleet, decode("silent")], "key") is None


def test_the_length_limit_is_that_of_the_smallest_usable_instance() -> None:
    """B4."""
    fleet = [prefill("p", max_tokens=50), decode("d", max_tokens=40), decode("unusable", "other", max_tokens=1)]
    assert longest_request(fleet) == 40


def test_a_shortage_says_what_is_missing() -> None:
    """B1."""
    assert shortage([prefill("p")]) == "1 prefill and 0 decode instances are ready, at least 1 of each is needed"
    assert shortage([prefill("p"), decode("d", "other")]) == "no prefill and decode instance hold the same weights"
