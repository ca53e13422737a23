"""The bytes that each token adds to the output, whatever way the tokenizer writes them down."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import tokenizers

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD_START = "\u2581"
_UNDERSTOOD = frozenset({"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"})


class UnsupportedDecoderError(ValueError):
    """The tokenizer joins tokens in a way that cannot be done token by token here."""


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """Bytes of single tokens; control tokens have none."""

    tokenizer: tokenizers.Tokenizer
    byte_level: bool
    strips_first_space: bool
    control: frozenset[int]
    _known: dict[int, bytes] = field(default_factory=dict)

    def of(self, token: int) -> bytes:
        """Bytes of one token id; ids outside the vocabulary (padded models can sample them) have none."""
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._spell(token)
        return known

    def _spell(self, token: int) -> bytes:
        text = None if token in self.control else self.tokenizer.id_to_token(token)
        if text is None:
            return b""
        return _byte_level(text) if self.byte_level else _word_pieces(text)


def token_bytes(tokenizer: tokenizers.Tokenizer) -> TokenBytes:
    """Read how `tokenizer` decodes. Raises `UnsupportedDecoderError` naming the step that is not understood."""
    steps = _steps(json.loads(tokenizer.to_str())["decoder"])
    kinds = {str(step["type"]) for step in steps}
    unknown = kinds - _UNDERSTOOD
    if unknown or not kinds:
        raise UnsupportedDecoderError(f"tokenizer decoder {', '.join(sorted(unknown)) or 'missing'} is not supported")
    control = (index for index, added in tokenizer.get_added_tokens_decoder().items() if added.special)
    return TokenBytes(
        tokenizer,
        byte_level="ByteLevel" in kinds,
        strips_first_space=any(_strips(step) for step in steps),
        control=frozenset(control),
    )


def _steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    return list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]


def _strips(step: dict[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        return bool(step.get("prepend_scheme", "always") != "never")
    return bool(step["type"] == "Strip" and step.get("start", 0) > 0)


def _byte_level_alphabet() -> dict[str, int]:
    """Byte-level BPE writes printable bytes as themselves and the others as the characters from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}


_ALPHABET = _byte_level_alphabet()


def _byte_level(text: str) -> bytes:
    # A token added later is spelled in plain text and may use characters that the alphabet lacks.
    if all(character in _ALPHABET for character in text):
        return bytes(_ALPHABET[character] for character in text)
    return text.encode()


def _word_pieces(text: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace(_WORD_START, " ").encode()
