"""The hub's client library within this process, as it would be in one of another environment."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from huggingface_hub import close_session, constants


@contextmanager
def client_with(environment: Mapping[str, str]) -> Iterator[None]:
    """The library reads its environment once, into `constants`: it does so again, and once more in the end."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        importlib.reload(constants)
        try:
            yield
        finally:
            close_session()
            patch.undo()
            importlib.reload(constants)
