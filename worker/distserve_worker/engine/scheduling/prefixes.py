"""Keys by which equal beginnings are found: one for each full block, over its tokens and all before them."""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

_KEY_BYTES: Final = 16


class PrefixKeys:
    """Keys of one request's blocks, made as they are asked for; `tokens` may grow at its end meanwhile.

    Requests of different salts never have a key in common.
    """

    def __init__(self, tokens: Sequence[int], block_tokens: int, salt: str) -> None:
        self._tokens = tokens
        self._block_tokens = block_tokens
        self._root = blake2b(salt.encode(), digest_size=_KEY_BYTES, person=b"salt").digest()
        self._keys: list[bytes] = []

    def of(self, tokens: int) -> Sequence[bytes]:
        """Keys of the blocks that the first `tokens` tokens fill."""
        count = tokens // self._block_tokens
        while len(self._keys) < count:
            self._keys.append(self._next())
        return self._keys[:count]

    def of_all_but_the_last(self) -> Sequence[bytes]:
        """Keys of the blocks that need not be computed: the last token must be, since its logits are wanted."""
        return self.of(len(self._tokens) - 1)

    def _next(self) -> bytes:
        start = len(self._keys) * self._block_tokens
        content = array("Q", self._tokens[start : start + self._block_tokens]).tobytes()
        before = self._keys[-1] if self._keys else self._root
        return blake2b(before + content, digest_size=_KEY_BYTES, person=b"block").digest()
