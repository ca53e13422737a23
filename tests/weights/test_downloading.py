"""Models of a hub, over the hub's own client: downloaded once, never half, and every refusal says what would help."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from distserve_testing.hub_client import client_with
from distserve_testing.hubs import COMMIT, REPOSITORY, Hub, played_hub

from distserve_worker.weights import locating
from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.patience import Patience

WAIT_SECONDS = 60
LOCATE = """
import logging, sys
from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.locating import locate
from distserve_worker.weights.patience import Patience
logging.basicConfig(level=logging.INFO)
try:
    print(locate(sys.argv[1], patience=Patience(pause_seconds=0.01)))
except ModelNotFound as error:
    print("ModelNotFound:", error)
"""
WEIGHTS = bytes(range(256)) * 4096


class Located:
    """`locate(REPOSITORY)` in a process of its own."""

    def __init__(self, environment: dict[str, str], before: str = "") -> None:
        command = [sys.executable, "-c", before + LOCATE, REPOSITORY]
        self.process = subprocess.Popen(
            command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ended(self) -> tuple[str, str]:
        """The answer, and what was logged."""
        try:
            answer, log = self.process.communicate(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            answer, log = self.process.communicate()
        assert self.process.returncode == 0, log
        return answer.strip(), log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "original").mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "original/params.json"):
        (folder / name).write_text("{}")
    for name in ("model.safetensors", "consolidated.safetensors", "original/model.safetensors", "model.bin"):
        (folder / name).write_bytes(WEIGHTS)
    return folder


@pytest.fixture
def hub(folder: Path) -> Iterator[Hub]:
    with played_hub(folder) as hub:
        hub.open.set()
        yield hub


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder that all processes share, as a claim."""
    return tmp_path / "home"


def answered(
    environment: Mapping[str, str],
    uri: str = REPOSITORY,
    files: Sequence[str] = locating.ALL_FILES,
    still_seconds: float = WAIT_SECONDS,
) -> str:
    """The folder, or what is wrong."""
    with client_with(environment):
        try:
            return str(locating.locate(uri, files, patience=Patience(0.01, still_seconds)))
        except ModelNotFound as error:
            return f"ModelNotFound: {error}"


def located(hub: Hub, home: Path, uri: str = REPOSITORY, **environment: str) -> str:
    return answered(hub.environment(home) | environment, uri)


@pytest.mark.parametrize("uri", [REPOSITORY, f"{REPOSITORY}@v1", f"{REPOSITORY}@{COMMIT}"])
def test_what_the_engine_reads_is_downloaded_and_nothing_else(hub: Hub, home: Path, uri: str) -> None:
    path = Path(located(hub, home, uri))
    names = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (path / "model.safetensors").read_bytes() == WEIGHTS
    assert path.is_relative_to(home)


def test_the_access_token_opens_a_private_model_and_is_shown_to_the_hub_alone(hub: Hub, home: Path) -> None:
    """Secrets are often made with a line break at their end."""
    hub.token = "hf_right"
    assert Path(located(hub, home, HF_TOKEN="hf_right\n")).is_dir()
    assert hub.storage.credentials == {None}


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (
            None,
            r"refuses it \(401: Repository not found\).* an access token into a Secret.*spec\.model\.hub\.tokenSecret",
        ),
        ("hf_wrong", r"does not take the access token \(401: Invalid credentials.*spec\.model\.hub\.tokenSecret"),
    ],
)
def test_a_private_model_says_what_the_token_lacks(hub: Hub, home: Path, token: str | None, words: str) -> None:
    hub.token = "hf_right"
    answer = located(hub, home, **({} if token is None else {"HF_TOKEN": token}))
    assert re.fullmatch(rf"ModelNotFound: {REPOSITORY}: the hub {words}.*", answer), answer
    assert "hf_" not in answer


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (None, r"refuses it \(401: Access to model org/tiny is restricted\.\).*tokenSecret"),
        (
            "hf_right",
            r"does not let the owner of the access token read it \(403: Access .*ask for access at .*/org/tiny",
        ),
    ],
)
def test_a_gated_model_says_where_access_is_asked_for(hub: Hub, home: Path, token: str | None, words: str) -> None:
    hub.gated = True
    answer = located(hub, home, **({} if token is None else {"HF_TOKEN": token}))
    assert re.match(rf"ModelNotFound: {REPOSITORY}: the hub {words}", answer), answer


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("hf://org/absent", "has no such repository, or does not show it to the owner of the access token"),
        (f"{REPOSITORY}@v9", "knows no revision v9 of it: check what follows the @"),
    ],
)
def test_what_the_hub_does_not_have_is_named(hub: Hub, home: Path, uri: str, words: str) -> None:
    assert located(hub, home, uri, HF_TOKEN="hf_any").startswith(f"ModelNotFound: {uri}: the hub {words}")


@pytest.mark.parametrize(("name", "words"), [("config.json", "config.json"), ("model.safetensors", "safetensors")])
def test_a_repository_of_another_format_says_what_it_lacks(
    hub: Hub, home: Path, folder: Path, name: str, words: str
) -> None:
    (folder / name).unlink()
    assert re.match(rf"ModelNotFound: {REPOSITORY}: the repository has no .*{words}", located(hub, home))


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_a_hub_that_refuses_everybody_is_told_apart_from_one_out_of_reach(hub: Hub, home: Path, status: int) -> None:
    hub.status = status
    answer = located(hub, home)
    assert re.match(rf"ModelNotFound: {REPOSITORY}: the hub .*{status}.*the hub has a bad day", answer), answer
    assert "cannot be reached" not in answer


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


@pytest.mark.parametrize("uri", [REPOSITORY, f"{REPOSITORY}@{COMMIT}"])
@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("private", r"refuses it \(401: "),
        ("revoked", r"does not take the access token \(401: "),
        ("gated", r"does not let the owner of the access token read it \(403: "),
        ("403", r"refuses it \(403: "),
    ],
)
def test_what_others_have_downloaded_is_not_for_whom_the_hub_refuses(
    hub: Hub, home: Path, uri: str, trouble: str, words: str
) -> None:
    """A claim that pods share must not give away what the owner of a token was allowed to read."""
    located(hub, home, uri)
    token = {}
    match trouble:
        case "private" | "revoked":
            hub.token = "hf_new"
        case "gated":
            hub.gated = True
        case "403":
            hub.status = 403
    if trouble in ("revoked", "gated"):
        token["HF_TOKEN"] = "hf_old"
    answer = located(hub, home, uri, **token)
    assert re.match(rf"ModelNotFound: {uri}: the hub {words}", answer), answer


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
    answered(hub.environment(home), files=locating.TEXT_FILES)
    answer = located(hub, home, HF_ENDPOINT="http://127.0.0.1:1")
    assert re.match(rf"ModelNotFound: {REPOSITORY}: .*cannot be reached.*model\.safetensors", answer), answer


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
        locating.locate(REPOSITORY, downloading=listener)
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
