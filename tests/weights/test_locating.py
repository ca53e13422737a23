"""Where a model's files are found, and what is said when they are not."""

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.locating import locate

# In a process of its own, because the hub's library reads its environment once, at import.
LOCATE = """
import sys
from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.locating import locate
try:
    print(locate(sys.argv[1]))
except ModelNotFound as error:
    print("ModelNotFound:", error)
"""


def _locate_elsewhere(uri: str, home: Path, **environment: str) -> str:
    command = [sys.executable, "-c", LOCATE, uri]
    variables = {**os.environ, "HF_HOME": str(home), **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


class _Absent(BaseHTTPRequestHandler):
    """A hub that has no repository at all."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """The test's output says nothing about requests."""


@pytest.fixture
def empty_hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Absent) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nothing/here", "no such file or folder"),
        ("/" + "x" * 300, "File name too long"),
        ("/nul\0byte", "null byte"),
        ("/dev/null", "neither a file nor a folder"),
        ("/dev/null/model", "Not a directory"),
    ],
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_path_that_cannot_be_a_model_is_named(scheme: str, path: str, reason: str) -> None:
    uri = scheme + path
    with pytest.raises(ModelNotFound, match=f"^{uri}: .*{reason}"):
        locate(uri)


def test_a_plain_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert locate(str(tmp_path)) == tmp_path


def test_a_file_uri_is_a_path(tmp_path: Path) -> None:
    model = tmp_path / "a model"
    model.mkdir()
    assert locate(f"file://{tmp_path}/a%20model") == model


@pytest.mark.parametrize("uri", ["/no/such/model.gguf", "file:///no/such/model.gguf"])
def test_a_missing_file_is_named(uri: str) -> None:
    with pytest.raises(ModelNotFound, match=f"^{uri}: no such file or folder"):
        locate(uri)


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelNotFound, match=r"s3://bucket: the scheme s3 is not known \(known: file, hf"):
        locate("s3://bucket")


def test_a_malformed_hub_name_is_refused_with_the_form() -> None:
    with pytest.raises(ModelNotFound, match=r"hf://a/b/c: not of the form hf://organisation/name@revision"):
        locate("hf://a/b/c")


def test_a_model_of_the_hub_is_found_in_the_cache(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "v1").write_text("0" * 40)
    assert _locate_elsewhere("hf://org/name@v1", tmp_path, HF_HUB_OFFLINE="1") == str(snapshot)


def test_a_hub_out_of_reach_is_said(tmp_path: Path) -> None:
    answer = _locate_elsewhere("hf://org/name", tmp_path, HF_HUB_OFFLINE="1")
    assert answer == "ModelNotFound: hf://org/name: the hub cannot be reached and the model is not in the local cache"


def test_a_repository_that_the_hub_does_not_have_is_said(tmp_path: Path, empty_hub: str) -> None:
    answer = _locate_elsewhere("hf://org/name", tmp_path, HF_ENDPOINT=empty_hub)
    assert answer.startswith("ModelNotFound: hf://org/name: the hub refused it (404")
