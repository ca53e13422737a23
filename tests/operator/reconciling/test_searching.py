"""Searches beside the passes: begun once, one at a time, tried again, given up when nobody asks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from distserve_testing.deployments import auto_resource
from distserve_testing.searches import FOUND, crash, find_at_once, hang

from distserve_operator.api.deployment import Wanted
from distserve_operator.api.parsing import parse
from distserve_operator.api.targets import Targets
from distserve_operator.cluster.caching import Key
from distserve_operator.cluster.errors import ApiUnreachableError
from distserve_operator.observed.nodes import Survey
from distserve_operator.observed.search import SearchFailed
from distserve_operator.reconciling.searching import Asked, Progress, Searcher

CHAT: Key = ("default", "chat")
WAIT_SECONDS = 120  # only bounds a failing test


@dataclass
class Surroundings:
    """What a searcher talks to: free devices, whom it wakes, and the clock."""

    free: tuple[int, ...] = (8,)
    unreachable: bool = False
    surveys: int = 0
    now: float = 0.0
    woken: "asyncio.Queue[Key]" = field(default_factory=asyncio.Queue)

    async def survey(self, _: Wanted) -> Survey:
        self.surveys += 1
        if self.unreachable:
            raise ApiUnreachableError("no answer from the API server")
        return Survey(self.free)

    async def news(self) -> Key:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.woken.get()


@asynccontextmanager
async def searching(
    surroundings: Surroundings, find: Callable[[Any], Any] = find_at_once, seconds: float = WAIT_SECONDS
) -> AsyncIterator[Searcher]:
    wake = surroundings.woken.put_nowait
    searcher = Searcher(surroundings.survey, wake, find, seconds, lambda: surroundings.now)
    try:
        yield searcher
    finally:
        await searcher.close()


def asked(digest: str = "d", known: str | None = None) -> Asked:
    wanted = parse(auto_resource())
    assert isinstance(wanted.placement, Targets)
    return Asked(digest, wanted, wanted.placement, known)


async def test_a_question_is_answered_in_the_background_with_what_it_was_answered_for() -> None:
    world = Surroundings()
    async with searching(world) as searcher:
        assert searcher.ask(CHAT, asked()) == Progress()
        assert searcher.ask(CHAT, asked()) == Progress()
        assert await world.news() == CHAT
        assert searcher.ask(CHAT, asked()).answer == FOUND | {"inventory": "1x8", "inputsDigest": "d"}
        assert world.surveys == 1


async def test_an_answer_stays_until_it_is_recorded_and_is_not_asked_for_again_soon() -> None:
    world = Surroundings()
    async with searching(world) as searcher:
        searcher.ask(CHAT, asked())
        await world.news()
        first = searcher.ask(CHAT, asked())
        assert searcher.ask(CHAT, asked()) is first
        searcher.recorded(CHAT)
        assert searcher.ask(CHAT, asked(known="1x8")) == Progress()
        world.now += 59
        assert searcher.ask(CHAT, asked(known="1x8")) == Progress()
        assert world.surveys == 1


async def test_an_infeasible_answer_is_searched_again_only_when_other_devices_are_free() -> None:
    """B35: a node that is added makes a fleet possible."""
    world = Surroundings()
    async with searching(world) as searcher:
        searcher.ask(CHAT, asked(known="1x8"))
        await world.news()
        assert searcher.ask(CHAT, asked(known="1x8")) == Progress()
        world.free, world.now = (8, 4), 60
        searcher.ask(CHAT, asked(known="1x8"))
        await world.news()
        answer = searcher.ask(CHAT, asked(known="1x8")).answer
        assert answer is not None
        assert answer["inventory"] == "1x8 + 1x4"
        assert world.surveys == 2


async def test_a_changed_question_ends_the_search_for_the_old_one() -> None:
    world = Surroundings()
    async with searching(world, hang) as searcher:
        searcher.ask(CHAT, asked("old"))
        searcher._find = find_at_once
        searcher.ask(CHAT, asked("new"))
        await world.news()
        answer = searcher.ask(CHAT, asked("new")).answer
        assert answer is not None
        assert answer["inputsDigest"] == "new"


async def test_a_search_that_dies_is_told_and_begun_anew_after_a_while() -> None:
    world = Surroundings()
    async with searching(world, crash) as searcher:
        searcher.ask(CHAT, asked())
        await world.news()
        failure = searcher.ask(CHAT, asked()).failure
        assert failure is not None
        assert "ended by SIGKILL" in failure.message
        searcher._find = find_at_once
        world.now += failure.again_seconds
        assert searcher.ask(CHAT, asked()) == Progress()
        await world.news()
        assert searcher.ask(CHAT, asked()).answer is not None


async def test_what_is_searched_for_too_long_fails_and_waits_longer_each_time() -> None:
    world = Surroundings()
    async with searching(world, hang, 0.5) as searcher:
        for seconds in (1, 2):
            assert searcher.ask(CHAT, asked()) == Progress()
            await world.news()
            failure = searcher.ask(CHAT, asked()).failure
            assert failure == SearchFailed("the search has failed: it was not done within 0.5 s", seconds)
            assert searcher.ask(CHAT, asked()).failure == failure, "not before the time has come"
            world.now += seconds


async def test_an_api_server_that_cannot_be_asked_is_told_too() -> None:
    world = Surroundings(unreachable=True)
    async with searching(world) as searcher:
        searcher.ask(CHAT, asked())
        await world.news()
        failure = searcher.ask(CHAT, asked()).failure
        assert failure is not None
        assert "no answer from the API server" in failure.message


async def test_one_deployment_is_searched_after_the_other() -> None:
    world = Surroundings()
    keys = [("default", name) for name in ("a", "b", "c")]
    async with searching(world) as searcher:
        for key in keys:
            searcher.ask(key, asked())
        assert [await world.news() for _ in keys] == keys
