"""Downloads a model from a hub into the cache that all processes with the same HF_HOME share.

The hub's library locks each file and moves it into place when it is whole, so nobody ever reads half of one. Here is
what it leaves open: requests without a deadline, connections that break, and words that help.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import httpx2
from huggingface_hub import HfApi, constants, get_token, set_client_factory, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils._http import default_client_factory

from distserve_worker.unforeseen import described
from distserve_worker.weights.download_failures import broke_off, of_chunked_storage, reason, refusal
from distserve_worker.weights.download_locks import LockHeld, give_up_after
from distserve_worker.weights.download_progress import Downloading, Tally
from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.hub_refusals import Asked
from distserve_worker.weights.patience import Patience

_BREAKS: Final = 3  # of connections that end a download
_ABANDONED_SECONDS: Final = 3600  # that nothing was written to a file: nobody is downloading it
# A repository often holds the same weights again: as they were published, or for other programs.
_UNUSED: Final = ("*/*", "consolidated*.safetensors")
# what no model is without, where the first pattern is asked for
_NEEDED: Final = (
    ("*.json", "config.json", "only repositories in the format of Hugging Face can be served"),
    ("*.safetensors", "*.safetensors", "weights are read from such files only, look for a repository that has them"),
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HubModel:
    """`hf://repository@revision`; of its files, those of the patterns `files` are wanted."""

    uri: str
    repository: str
    revision: str | None
    files: Sequence[str]


def download(model: HubModel, listener: Downloading, patience: Patience) -> Path:
    """The folder with the model's files, which are downloaded unless they are in the cache; without hub, from there.

    Raises `ModelNotFound` naming the URI, the reason and what would help.
    """
    set_client_factory(_client_with_deadlines)
    give_up_after(patience.still_seconds)
    # it says when it waits for another process; of its requests, even addresses are secret
    logging.getLogger("huggingface_hub").setLevel(logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        _remove_abandoned(model)
        _check_access(model)
        return _checked(model, _downloaded(model, Tally(model.uri, listener), patience.pause_seconds))
    except HFValidationError as error:
        raise ModelNotFound(f"{model.uri}: not of the form hf://organisation/name@revision ({error})") from error
    except LockHeld as error:
        raise ModelNotFound(f"{model.uri}: {error}") from error
    except (httpx2.HTTPError, RuntimeError, OSError) as error:
        if isinstance(error, RuntimeError) and not of_chunked_storage(error):
            raise  # a mistake in a program, which no other network would mend
        raise ModelNotFound(f"{model.uri}: {reason(error, _asked(model))}") from error


def _check_access(model: HubModel) -> None:
    """Whoever shares the cache may read what is in it only as long as the hub would let them.

    The library asks only for what is missing. A hub that cannot be asked, or has other troubles, has not said no.
    """
    try:
        HfApi().auth_check(model.repository)
    except HfHubHTTPError as error:
        if refusal(error).denies:
            raise
    except (httpx2.HTTPError, OSError) as error:
        logger.info("%s: whether it may be read cannot be asked (%s)", model.uri, described(error))


def _downloaded(model: HubModel, tally: Tally, pause_seconds: float) -> Path:
    for breaks in range(1, _BREAKS + 1):
        try:
            return _snapshot(model, tally)
        except (httpx2.TransportError, RuntimeError, OSError) as error:
            if not broke_off(error):
                raise
            logger.warning("%s: the download broke off (%s)", model.uri, described(error))
            if of_chunked_storage(error):  # which some networks do not let through
                constants.HF_HUB_DISABLE_XET = True
            failure = error
            time.sleep(pause_seconds * breaks)
    with suppress(LocalEntryNotFoundError):
        return _snapshot(model, tally, local_files_only=True)
    raise failure


def _snapshot(model: HubModel, tally: Tally, *, local_files_only: bool = False) -> Path:
    return Path(
        snapshot_download(
            model.repository,
            revision=model.revision,
            allow_patterns=list(model.files),
            ignore_patterns=list(_UNUSED),
            tqdm_class=cast("Any", tally.bar),
            local_files_only=local_files_only,
        )
    )


def _client_with_deadlines() -> httpx2.Client:
    """The library's own, which would await the answer to some requests for ever."""
    client = default_client_factory()
    client.event_hooks = {"request": [*client.event_hooks["request"], _set_deadlines]}
    return client


def _set_deadlines(request: httpx2.Request) -> None:
    stated = request.extensions["timeout"]
    request.extensions["timeout"] = {
        step: constants.HF_HUB_DOWNLOAD_TIMEOUT if seconds is None else seconds for step, seconds in stated.items()
    }


def _remove_abandoned(model: HubModel) -> None:
    """What processes that were killed left behind: nobody can use it, and claims would fill up."""
    folder = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=model.repository, repo_type="model"), "blobs")
    for path in folder.glob("*.incomplete"):
        with suppress(OSError):  # another process was faster, or owns it
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()


def _checked(model: HubModel, folder: Path) -> Path:
    """Say what is missing in the words of the URI: the folder is one of the cache, which nobody has heard of."""
    for pattern, needed, fix in _NEEDED:
        if pattern in model.files and not any(folder.glob(needed)):
            raise ModelNotFound(f"{model.uri}: the repository has no {needed}: {fix}")
    return folder


def _asked(model: HubModel) -> Asked:
    page = f"{constants.ENDPOINT}/{model.repository}"
    return Asked(page, model.revision or constants.DEFAULT_REVISION, _has_token())


def _has_token() -> bool:
    with suppress(OSError):  # it is looked for in HF_HOME as well, which may be what cannot be read
        return get_token() is not None
    return False
