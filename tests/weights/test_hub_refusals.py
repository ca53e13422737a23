"""What a refusal means, where the hub itself is not asked: tests/weights/test_hub_access.py has the rest."""

import pytest

from distserve_worker.weights.hub_refusals import Asked, Refusal, explained

ASKED = Asked("https://hub/a/b", "main", has_token=True)


def test_the_storage_of_large_files_knows_no_tokens() -> None:
    said = explained(Refusal(403, "", "Request has expired", from_storage=True), ASKED)
    assert said == "the hub's storage refuses a file of it (403: Request has expired)"


def test_too_many_requests_are_fewer_with_a_token() -> None:
    assert "spec.model.hub.tokenSecret" in explained(Refusal(429, "", ""), ASKED)


def test_a_hub_without_words_is_quoted_by_its_number() -> None:
    assert explained(Refusal(503, "", ""), ASKED) == "the hub refuses it (503)"


def test_a_hub_with_many_words_is_cut_short() -> None:
    assert len(explained(Refusal(500, "", "x" * 10_000), ASKED)) < 300


@pytest.mark.parametrize(
    ("status", "code", "denies"),
    [
        (401, "", True),
        (403, "GatedRepo", True),
        (404, "RepoNotFound", True),  # so answers a hub to the token of somebody else
        (404, "", False),  # a mirror that cannot be asked so
        (429, "", False),
        (503, "", False),
    ],
)
def test_a_no_is_told_apart_from_the_troubles_of_a_hub(status: int, code: str, *, denies: bool) -> None:
    assert Refusal(status, code, "").denies is denies
