"""docs/models.md names every architecture, format and scheme that there is, and quotes what is said of a hub."""

import re
from pathlib import Path

import pytest

from distserve_worker.engine.blueprint import KV_DTYPE
from distserve_worker.weights.config import Architecture
from distserve_worker.weights.hub_refusals import Asked, Refusal, explained
from distserve_worker.weights.limits import MOST
from distserve_worker.weights.locating import ALL_FILES

PAGE = (Path(__file__).parents[2] / "docs/models.md").read_text()


def _first_cells(heading: str) -> list[str]:
    """What the table after `heading` names in its first column."""
    table = PAGE.partition(heading)[2].partition("\n\n|")[2].partition("\n\n")[0]
    return re.findall(r"^\|? ?`([^`]+)`", table, re.MULTILINE)


def test_the_architectures_are_those_that_can_be_served() -> None:
    assert set(_first_cells("## What can be served")) == {"model_type", *Architecture}


def test_the_formats_are_those_of_the_engine() -> None:
    assert set(_first_cells("## Number formats")) == {"dtype", *KV_DTYPE}


def test_the_files_and_limits_are_those_of_the_code() -> None:
    assert all(f"`{pattern}`" in PAGE for pattern in ALL_FILES)
    assert f"at most {MOST['layers']} layers and {MOST['vocab']:,} tokens" in PAGE


@pytest.mark.parametrize("has_token", [True, False])
@pytest.mark.parametrize(
    ("status", "code"),
    [(401, ""), (401, "RepoNotFound"), (403, "GatedRepo"), (404, "RepoNotFound"), (404, "RevisionNotFound")],
)
def test_what_a_hub_refuses_is_explained_there(status: int, code: str, has_token: bool) -> None:
    said = explained(Refusal(status, code, "said"), Asked("page", "v1", has_token))
    quoted = [line.partition("…")[0] for line in re.findall(r"^\| `(the hub [^`]+)`", PAGE, re.MULTILINE)]
    quoted = [re.sub(r"\(40\d: $", "(", words) for words in quoted]
    assert any(said.startswith(words) for words in quoted), (said, quoted)
