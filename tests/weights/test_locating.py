"""Where a model's files are found, and what is said when they are not."""

from pathlib import Path

import pytest

from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.locating import locate


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
