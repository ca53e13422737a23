"""What the parsers of JSON and YAML raise about a text that somebody wrote, as errors of one kind."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import yaml

# of values that are none of their kind: dates of a 99th day, endless digits, and whatever stands under an explicit tag
_VALUES: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError)


@contextmanager
def legible() -> Iterator[None]:
    """Whatever is wrong with a text that is parsed inside is a ValueError, with one line for a person."""
    try:
        yield
    except RecursionError as error:
        raise ValueError("it is nested too deeply: write it with fewer levels") from error
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        raise ValueError(_one_line(error)) from error
    except _VALUES as error:
        raise ValueError(
            f"a value is none of its kind ({_one_line(error)}): correct it, or quote it if it is a text"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
