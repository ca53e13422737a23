"""Decode schedulers for tests: requests of (tokens there are, tokens to come), named r0, r1 and so on."""

from distserve_testing.driven_scheduler import DrivenScheduler, request_of
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.decode import DecodeScheduler
from distserve_worker.engine.scheduling.interface import Step
from distserve_worker.engine.scheduling.rules import BatchRules


def driven_decode(
    blocks: int = 64, max_running: int = 8, spare: int = 0, lanes: int = 1, max_waiting: int = 100
) -> DrivenScheduler:
    scheduler = DecodeScheduler(BlockManager(blocks, 4), BatchRules(max_running, spare, lanes), max_waiting)
    return DrivenScheduler(scheduler, max_running)


def add(driven: DrivenScheduler, *sizes: tuple[int, int]) -> None:
    """Requests of (tokens there are, tokens to come)."""
    for tokens, new in sizes:
        known = len(driven.living) + len(driven.ended) + len(driven.put_back)
        driven.add(request_of(f"r{known}", [0] * tokens, new, output=(1,)))


def add_running(driven: DrivenScheduler, *sizes: tuple[int, int]) -> None:
    """The same, with their KV imported."""
    add(driven, *sizes)
    assert driven.reserve() == len(sizes)
    for _ in sizes:
        driven.finish_import(0)


def next_and_put_back(driven: DrivenScheduler) -> tuple[list[str], list[str]]:
    step = driven.next() or Step()
    running, put_back = ([request.request_id for request in some] for some in (step.running, step.put_back))
    return running, put_back


def next_running(driven: DrivenScheduler) -> list[str]:
    return next_and_put_back(driven)[0]


def step_and_done(driven: DrivenScheduler) -> list[str]:
    names = next_running(driven)
    driven.done()
    return names
