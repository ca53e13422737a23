"""Models of a hub, over the hub's own client: downloaded once, and never half."""

import os
import re
import time
from pathlib import Path

import pytest
from distserve_testing.hub_client import client_with
from distserve_testing.hubs import COMMIT, REPOSITORY, WEIGHTS, Hub
from distserve_testing.located import WAIT_SECONDS, Located, located

from distserve_worker.weights.locating import locate


@pytest.mark.parametrize("uri", [REPOSITORY, f"{REPOSITORY}@v1", f"{REPOSITORY}@{COMMIT}"])
def test_what_the_engine_reads_is_downloaded_and_nothing_else(hub: Hub, home: Path, uri: str) -> None:
    path = Path(located(hub, home, uri))
    names = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (path / "model.safetensors").read_bytes() == WEIGHTS
    assert path.is_relative_to(home)


@pytest.mark.parametrize(("name", "words"), [("config.json", "config.json"), ("model.safetensors", "safetensors")])
def test_a_repository_of_another_format_says_what_it_lacks(
    hub: Hub, home: Path, folder: Path, name: str, words: str
) -> None:
    (folder / name).unlink()
    assert re.match(rf"ModelNotFound: {REPOSITORY}: the repository has no .*{words}", located(hub, home))


def test_a_download_that_breaks_off_is_begun_again(hub: Hub, home: Path) -> None:
    hub.storage.breaks = 1
    path = Path(located(hub, home))
    assert (path / "model.safetensors").read_bytes() == WEIGHTS
    assert hub.storage.begun["model.safetensors"] == 2


def test_a_chunked_storage_out_of_reach_is_gone_around(hub: Hub, home: Path) -> None:
    """Some networks let the hub through, and not the hosts of Xet."""
    hub.chunked = True
    environment = {"HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "1", "HF_XET_CLIENT_RETRY_BASE_DELAY": "1ms"}
    path, _ = Located(hub.environment(home) | environment).ended()
    assert (Path(path) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_mistake_in_a_program_is_no_broken_download(hub: Hub, home: Path) -> None:
    def listener(*_: int) -> None:
        raise RuntimeError("a mistake")

    with client_with(hub.environment(home)), pytest.raises(RuntimeError, match="a mistake"):
        locate(REPOSITORY, downloading=listener)
    assert hub.storage.begun["model.safetensors"] <= 1


def test_a_download_that_always_breaks_off_is_an_error_and_leaves_no_half(hub: Hub, home: Path) -> None:
    hub.storage.breaks = 100
    answer = located(hub, home)
    assert re.match(rf"ModelNotFound: {REPOSITORY}: the download broke off", answer), answer
    assert not list(home.rglob("*.incomplete"))
    hub.storage.breaks = 0
    assert (Path(located(hub, home)) / "model.safetensors").read_bytes() == WEIGHTS


def test_the_half_of_a_killed_download_is_never_used(hub: Hub, home: Path) -> None:
    hub.storage.open.clear()
    killed = Located(hub.environment(home))
    assert hub.storage.halfway.wait(WAIT_SECONDS)
    killed.process.kill()
    killed.process.communicate(timeout=WAIT_SECONDS)
    halves = list(home.rglob("*.incomplete"))
    assert halves
    for half in halves:
        os.utime(half, (0, 0))
    hub.storage.open.set()
    assert (Path(located(hub, home)) / "model.safetensors").read_bytes() == WEIGHTS
    assert not any(half.exists() for half in halves)


def test_processes_that_start_at_once_with_one_cache_download_once(hub: Hub, home: Path) -> None:
    hub.storage.open.clear()
    both = [Located(hub.environment(home)) for _ in range(2)]
    assert hub.storage.halfway.wait(WAIT_SECONDS)
    until = time.monotonic() + WAIT_SECONDS
    while hub.asked.count("model.safetensors") < 2:  # the other one has got as far, too
        assert time.monotonic() < until, hub.asked
        time.sleep(0.02)
    hub.storage.open.set()
    paths = {one.ended()[0] for one in both}
    assert len(paths) == 1
    assert (Path(paths.pop()) / "model.safetensors").read_bytes() == WEIGHTS
    assert hub.storage.begun == {"model.safetensors": 1}


def test_a_file_that_grows_too_large_for_the_disk_is_told_with_the_folder_of_the_cache(hub: Hub, home: Path) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    answer, _ = Located(hub.environment(home), limit).ended()
    words = rf"it cannot be kept in {home}/hub: File too large: .*spec\.model\.hub\.cacheClaim"
    assert re.match(rf"ModelNotFound: {REPOSITORY}: {words}", answer), answer
    assert not list(home.rglob("*.incomplete"))


def test_a_cache_that_is_no_folder_is_told(hub: Hub, tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("no folder")
    answer = located(hub, home)
    assert re.match(rf"ModelNotFound: {REPOSITORY}: .*{home}.*spec\.model\.hub\.cacheClaim", answer), answer


def test_the_log_says_how_far_the_download_is(hub: Hub, home: Path, folder: Path) -> None:
    """The hub's own bars are none for a log."""
    (folder / "model.safetensors").write_bytes(WEIGHTS * 12)
    _, log = Located(hub.environment(home)).ended()
    assert re.search(rf"INFO:distserve_worker\S+:downloading {REPOSITORY}: 10 of 12 MB$", log, re.MULTILINE), log
    assert "Fetching" not in log


def test_a_malformed_name_is_refused_with_the_form(hub: Hub, home: Path) -> None:
    answer = located(hub, home, "hf://a/b/c")
    assert answer.startswith("ModelNotFound: hf://a/b/c: not of the form hf://organisation/name@revision")
