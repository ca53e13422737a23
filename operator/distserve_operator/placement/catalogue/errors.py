"""What can be wrong with the name or the configuration of a model or device."""

import difflib
from collections.abc import Iterable


class UnknownNameError(ValueError):
    """A name that the catalogue does not have. `nearest` are the names that look most like it, the best first."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        by_lower = {one.lower(): one for one in known}
        found = difflib.get_close_matches(name.rpartition("/")[2].lower(), by_lower, n=3, cutoff=0.5)
        self.nearest = tuple(by_lower[one] for one in found)
        choice = f"did you mean {' or '.join(self.nearest)}?" if found else f"known are {', '.join(by_lower.values())}"
        super().__init__(f"{kind} {name!r} is not known: {choice}")


class UnknownModelError(UnknownNameError):
    """No model of this name; its config.json would do as well."""


class UnknownDeviceError(UnknownNameError):
    """No device of this name."""


class UnsupportedConfigError(ValueError):
    """A config.json that describes no model that can be planned for; the text names the field."""
