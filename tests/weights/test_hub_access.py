"""Whom the hub lets read a model, and what a refusal says would help."""

import re
from pathlib import Path

import pytest
from distserve_testing.hubs import COMMIT, REPOSITORY, Hub
from distserve_testing.located import located


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


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_a_hub_that_refuses_everybody_is_told_apart_from_one_out_of_reach(hub: Hub, home: Path, status: int) -> None:
    hub.status = status
    answer = located(hub, home)
    assert re.match(rf"ModelNotFound: {REPOSITORY}: the hub .*{status}.*the hub has a bad day", answer), answer
    assert "cannot be reached" not in answer


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
