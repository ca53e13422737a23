"""Models of a hub that is out of reach or in trouble: what is in the cache, or another try."""

import re
import time
from pathlib import Path

import pytest
from distserve_testing.hubs import REPOSITORY, WEIGHTS, Hub
from distserve_testing.located import WAIT_SECONDS, Located, answered, located

from distserve_worker.weights.locating import TEXT_FILES


@pytest.mark.parametrize("trouble", ["gone", "offline", "429", "503", "silent", "hangs up"])
def test_what_was_downloaded_before_serves_without_the_hub(hub: Hub, home: Path, trouble: str) -> None:
    first = located(hub, home)
    environment = hub.environment(home, seconds=1)
    match trouble:
        case "gone":
            environment["HF_ENDPOINT"] = "http://127.0.0.1:1"
        case "offline":
            environment["HF_HUB_OFFLINE"] = "1"
        case "429" | "503":
            hub.status = int(trouble)
        case "silent":
            hub.open.clear()
        case "hangs up":
            hub.hangs_up = True
    assert answered(environment) == first


def test_a_hub_out_of_reach_is_said_with_the_reason(hub: Hub, home: Path) -> None:
    answer = located(hub, home, HF_ENDPOINT="http://127.0.0.1:1")
    assert re.match(
        rf"ModelNotFound: {REPOSITORY}: the hub http://127\.0\.0\.1:1 cannot be reached \(.*refused", answer
    )
    assert "not in the cache" in answer


def test_a_silent_hub_is_not_awaited_for_ever(hub: Hub, home: Path) -> None:
    hub.open.clear()
    answer = answered(hub.environment(home, seconds=1))
    assert re.match(rf"ModelNotFound: {REPOSITORY}: the hub {hub.url} cannot be reached \(.*time", answer), answer


def test_a_hub_that_answers_late_is_asked_again(hub: Hub, home: Path) -> None:
    """Nothing is in the cache, so that the hub is worth another try."""
    hub.open.clear()
    one = Located(hub.environment(home, seconds=1))
    until = time.monotonic() + WAIT_SECONDS
    while hub.asked.count("main") < 2:
        assert time.monotonic() < until, hub.asked
        time.sleep(0.02)
    hub.open.set()
    path, log = one.ended()
    assert (Path(path) / "model.safetensors").read_bytes() == WEIGHTS, log
    assert "the download broke off" in log


def test_only_a_part_of_the_files_in_the_cache_is_no_model(hub: Hub, home: Path) -> None:
    """A gateway has downloaded what it needs; a worker that starts without the hub must not take that for all."""
    answered(hub.environment(home), files=TEXT_FILES)
    answer = located(hub, home, HF_ENDPOINT="http://127.0.0.1:1")
    assert re.match(rf"ModelNotFound: {REPOSITORY}: .*cannot be reached.*model\.safetensors", answer), answer
