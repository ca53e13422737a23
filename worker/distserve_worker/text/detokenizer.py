"""Turns tokens into text as they come, at a cost that is linear in the output."""

import codecs
from collections.abc import Iterable

from distserve_worker.text.token_bytes import TokenBytes


class Detokenizer:
    """The text of one output so far.

    Characters whose bytes are spread over several tokens appear when they are complete; only bytes that can no longer
    become a character turn into U+FFFD. All pieces together equal the tokenizer's own decoding of all tokens.
    """

    __slots__ = ("_bytes", "_decoder", "_strip")

    def __init__(self, pieces: TokenBytes) -> None:
        self._bytes = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = pieces.strips_first_space

    def feed(self, tokens: Iterable[int]) -> str:
        """The characters that `tokens` complete."""
        return self._decoder.decode(b"".join(self._spell(token) for token in tokens))

    def finish(self) -> str:
        """What is left when no more tokens come: U+FFFD for a character that never became complete."""
        return self._decoder.decode(b"", final=True)

    def _spell(self, token: int) -> bytes:
        spelled = self._bytes.of(token)
        if self._strip and spelled:
            self._strip = False
            return spelled.removeprefix(b" ")
        return spelled
