"""Typed access to the metadata of a GGUF file, whose mistakes are named."""

from distserve_worker.weights.config import Architecture, architecture_named
from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.gguf_header import GgufHeader, Value
from distserve_worker.weights.limits import MOST, allowed


class GgufMetadata:
    """The values under the name of the file's architecture. Raises `ModelInvalid` for one that is not known."""

    def __init__(self, header: GgufHeader) -> None:
        self._values = header.metadata
        self.where = str(header.path)
        self.architecture = architecture_named(
            header.metadata.get("general.architecture", "(no general.architecture)"),
            self.where,
            known=(Architecture.LLAMA,),
        )

    def name(self, key: str) -> str:
        """The key as the file has it."""
        return f"{self.architecture}.{key}"

    def keys(self, prefix: str) -> list[str]:
        """Those that begin so."""
        whole = self.name(prefix)
        return [name.removeprefix(self.name("")) for name in self._values if name.startswith(whole)]

    def get(self, key: str) -> Value | None:
        """Whatever is there; None: nothing."""
        return self._values.get(self.name(key))

    def number(self, key: str, default: float | None = None) -> float:
        """A number. Raises `ModelInvalid` when there is none, and no default."""
        return float(self._number(key, default))

    def count(self, key: str, what: str, default: int | None = None) -> int:
        """A whole number, such as a model can have of `what` (of `limits.MOST`). Raises `ModelInvalid`."""
        value = self._number(key, default)
        if not 1 <= value <= MOST[what] or value != int(value):
            raise ModelInvalid(f"{self.where}: {self.name(key)} is {value}, it must be {allowed(what)}")
        return int(value)

    def _number(self, key: str, default: float | None) -> int | float:
        value = self.get(key)
        if value is None:
            value = default
        if not isinstance(value, int | float):
            raise ModelInvalid(f"{self.where}: no number under {self.name(key)}")
        return value
