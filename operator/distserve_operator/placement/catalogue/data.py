"""The data files of this package, read once."""

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def text_of(path: str) -> str | None:
    """A data file as text; None: there is no such file. `path` counts from this package."""
    file = files(__package__).joinpath(path)
    return file.read_text(encoding="utf-8") if file.is_file() else None


@cache
def content_of(path: str) -> Any:  # noqa: ANN401 - whatever our own files hold
    """A data file that is there, parsed. Callers do not change it."""
    text = text_of(path)
    assert text is not None
    return yaml.safe_load(text)
