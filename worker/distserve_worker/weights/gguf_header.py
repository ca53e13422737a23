"""Reads the header of a GGUF file: its metadata, and where each tensor lies; tensor data stays on disk.

The `gguf` library keeps a NumPy array for every string of the vocabulary, which takes seconds a file and would be paid
at each start of a gateway or worker; one pass with `struct` takes some tens of milliseconds.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from distserve_worker.weights.errors import ModelInvalid

Scalar = int | float | bool | str
Value = Scalar | list[Scalar]

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
_ALIGNMENT: Final = 32  # bytes, where the file does not say
_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of the file: `shape` with the fastest dimension last, `offset` in bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata by key, and the tensors by name."""

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]


def read_gguf_header(path: Path) -> GgufHeader:
    """Parse the header of `path`. Raises `ModelInvalid` when it is no GGUF file or ends too early."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ModelInvalid(f"{path}: not a GGUF file (it does not start with {MAGIC.decode()})")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _Parser(path, data).header()
            except (struct.error, UnicodeDecodeError, KeyError, OverflowError) as error:
                raise ModelInvalid(f"{path}: the GGUF header is truncated or damaged ({error})") from error


class _Parser:
    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._at = len(MAGIC)

    def header(self) -> GgufHeader:
        (version,) = self._unpack("I")
        if version not in VERSIONS:
            raise ModelInvalid(f"{self._path}: GGUF version {version} is not known (known: {VERSIONS})")
        tensor_count, key_count = self._unpack("QQ")
        metadata = {}
        for _ in range(key_count):
            key = self._string()
            metadata[key] = self._value(self._unpack("I")[0])
        relative = [self._tensor() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ModelInvalid(f"{self._path}: general.alignment is {alignment}, it must be at least 1")
        start = -(-self._at // alignment) * alignment
        tensors = {t.name: GgufTensor(t.name, t.shape, t.ggml_type, start + t.offset) for t in relative}
        return GgufHeader(self._path, metadata, tensors)

    def _unpack(self, form: str) -> tuple[int, ...]:
        packed = "<" + form
        values = struct.unpack_from(packed, self._data, self._at)
        self._at += struct.calcsize(packed)
        return values

    def _string(self) -> str:
        (size,) = self._unpack("Q")
        return self._unpack_bytes(size).decode()

    def _unpack_bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise struct.error(f"{size} bytes wanted at {self._at}, the file has {len(self._data)}")
        text = self._data[self._at : end]
        self._at = end
        return text

    def _value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            item, count = self._unpack("I")[0], self._unpack("Q")[0]
            if item == _STRING:
                return [self._string() for _ in range(count)]
            return list(self._unpack(f"{count}{_SCALARS[item]}"))
        return self._unpack(_SCALARS[kind])[0]

    def _tensor(self) -> GgufTensor:
        name = self._string()
        dimensions = self._unpack(f"{self._unpack('I')[0]}Q")
        ggml_type, offset = self._unpack("IQ")
        return GgufTensor(name, tuple(reversed(dimensions)), ggml_type, offset)
