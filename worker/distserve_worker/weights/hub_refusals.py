"""What a hub's refusal means for whoever deploys the model, and what would help."""

from dataclasses import dataclass
from typing import Final

_SECRET: Final = "spec.model.hub.tokenSecret (outside of Kubernetes: in HF_TOKEN)"  # noqa: S105 - a field's name
_MOST_SAID: Final = 200  # characters of the hub's own words


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer of the hub, or of its storage where large files lie: `code` and `said` are its own words."""

    status: int
    code: str
    said: str
    from_storage: bool = False

    @property
    def denies(self) -> bool:
        """Whether it means that who asks may not read the repository; others mean that the hub has troubles."""
        return self.status in (401, 403) or self.code == "RepoNotFound"


@dataclass(frozen=True, slots=True)
class Asked:
    """What it was asked for: `page` is the repository's; `has_token`: an access token was shown."""

    page: str
    revision: str
    has_token: bool


def explained(refusal: Refusal, asked: Asked) -> str:
    """One sentence: who refuses, in which words, and what to do."""
    answer = f"{refusal.status}: {refusal.said[:_MOST_SAID]}".rstrip(": ")
    if refusal.from_storage:
        return f"the hub's storage refuses a file of it ({answer})"
    if refusal.code == "RevisionNotFound":
        return f"the hub knows no revision {asked.revision} of it: check what follows the @"
    if refusal.status in (401, 403, 404):
        return _denied(refusal.status, answer, asked)
    more = f": an access token allows more, name its Secret in {_SECRET}" if refusal.status == 429 else ""
    return f"the hub refuses it ({answer}){more}"


def _denied(status: int, answer: str, asked: Asked) -> str:
    if not asked.has_token:
        return (
            f"the hub refuses it ({answer}): check the name; where the model is not public, put an access token into a "
            f"Secret and name that in {_SECRET}"
        )
    if status == 401:
        return f"the hub does not take the access token ({answer}): replace the one in the Secret of {_SECRET}"
    if status == 403:
        return (
            f"the hub does not let the owner of the access token read it ({answer}): ask for access at {asked.page}, "
            f"or name another token's Secret in {_SECRET}"
        )
    return (
        f"the hub has no such repository, or does not show it to the owner of the access token ({answer}): check the "
        f"name, and the Secret of {_SECRET}"
    )
