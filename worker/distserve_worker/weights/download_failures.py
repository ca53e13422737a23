"""What the errors of the hub's library mean: whether to try again, and why there is no model."""

from traceback import walk_tb

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError, IncompleteSnapshotError, LocalEntryNotFoundError
from huggingface_hub.file_download import xet_get

from distserve_worker.unforeseen import described
from distserve_worker.weights.hub_refusals import Asked, Refusal, explained


def broke_off(error: BaseException) -> bool:
    """Whether another try may fare better: a connection failed, be it that of a file or that which lists them."""
    cause = error.__cause__ if isinstance(error, LocalEntryNotFoundError) else error
    return isinstance(cause, httpx2.TransportError) or of_chunked_storage(error)


def of_chunked_storage(error: BaseException) -> bool:
    """Whether it comes from the program that reads the chunked storage (Xet), whose errors are of any kind."""
    if not isinstance(error, RuntimeError | ConnectionError | TimeoutError):
        return False
    return any(frame.f_code is xet_get.__code__ for frame, _ in walk_tb(error.__traceback__))


def reason(error: Exception, asked: Asked) -> str:
    """Why there is no model, and what would help; `error` is of the library, of its client or of the disk."""
    cause = error.__cause__ if isinstance(error, LocalEntryNotFoundError) and error.__cause__ else error
    if isinstance(cause, HfHubHTTPError):
        return explained(refusal(cause), asked)
    if isinstance(error, IncompleteSnapshotError):
        lacking = str(error).partition(". ")[0]
        return f"the hub {constants.ENDPOINT} cannot be reached ({described(cause)}). {lacking}"
    if isinstance(error, LocalEntryNotFoundError):
        where = f"the model is not in the cache {constants.HF_HUB_CACHE}"
        return f"the hub {constants.ENDPOINT} cannot be reached ({described(cause)}), and {where}"
    if isinstance(error, OSError) and error.errno is not None:
        room = "spec.model.hub.cacheClaim names the claim, without it the node's disk is used"
        return f"it cannot be kept in {constants.HF_HUB_CACHE}: {error.strerror}: check that ({room})"
    return f"the download broke off ({described(error)}): it is begun again at the next start"


def refusal(error: HfHubHTTPError) -> Refusal:
    """What the hub, or its storage, has answered."""
    headers, url = error.response.headers, str(error.response.url)
    return Refusal(
        status=error.response.status_code,
        code=headers.get("x-error-code", ""),
        said=headers.get("x-error-message") or error.server_message or "",
        from_storage=not url.startswith(constants.ENDPOINT),
    )
