"""What a pass sees: kopf's indexes, our own writes, and nothing that is gone."""

from typing import Any

from distserve_operator.cluster.caching import Key, ObjectCache

KEY: Key = ("default", "chat")


def pod(uid: str, version: int = 1, **more: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}, **more}


def cache_of(*pods: dict[str, Any]) -> tuple[ObjectCache, dict[Key, list[dict[str, Any]]]]:
    index = {KEY: list(pods)}
    cache = ObjectCache()
    cache.bind({"Pod": index})
    return cache, index


def uids(cache: ObjectCache, key: Key = KEY) -> list[str]:
    return sorted(body["metadata"]["uid"] for body in cache.objects("Pod", key))


def test_an_object_that_was_just_written_is_seen_at_once() -> None:
    """B24: a pass right after a create must not create again."""
    cache, index = cache_of(pod("a"))
    cache.learn("Pod", KEY, pod("b", 7))
    assert uids(cache) == ["a", "b"]
    index[KEY].append(pod("b", 7))
    assert uids(cache) == ["a", "b"]


def test_the_newest_version_wins() -> None:
    cache, index = cache_of(pod("a", 5, note="indexed"))
    cache.learn("Pod", KEY, pod("a", 6, note="written"))
    assert cache.objects("Pod", KEY)[0]["note"] == "written"
    index[KEY][0] = pod("a", 10, note="newer")
    assert cache.objects("Pod", KEY)[0]["note"] == "newer"


def test_other_deployments_and_kinds_see_nothing_of_it() -> None:
    cache, _ = cache_of()
    cache.learn("Pod", KEY, pod("b", 7))
    assert uids(cache, ("default", "other")) == []
    assert cache.objects("Service", KEY) == []


def test_a_deleted_object_is_forgotten_even_when_only_its_write_was_known() -> None:
    cache, _ = cache_of()
    cache.learn("Pod", KEY, pod("b", 7))
    cache.forget("b")
    assert uids(cache) == []


def test_the_answer_to_a_delete_that_comes_after_the_event_brings_nothing_back() -> None:
    cache, _ = cache_of()
    cache.forget("b")
    cache.learn("Pod", KEY, pod("b", 7))
    assert uids(cache) == []


def test_an_object_that_a_broken_watch_has_missed_going_is_not_seen() -> None:
    """B19."""
    cache, index = cache_of(pod("ghost"), pod("a"))
    cache.lost(["ghost"])
    assert uids(cache) == ["a"]
    assert cache.uids("Pod") == {"a": KEY}
    cache.learn("Pod", KEY, pod("ghost", 9))
    assert uids(cache) == ["a"], "a late answer does not bring it back"
    index[KEY] = [pod("a")]
    cache.forget("ghost")


def test_no_deployment_is_known_before_all_kinds_have_been_listed() -> None:
    cache, _ = cache_of(pod("a"))
    assert cache.keys("Pod") == []
    cache.complete()
    assert cache.keys("Pod") == [KEY]


def test_a_write_without_an_object_in_its_answer_is_ignored() -> None:
    cache, _ = cache_of()
    cache.learn("Pod", KEY, {"kind": "Status"})
    assert uids(cache) == []
