"""Tokens of one KV block."""

from typing import Final

BLOCK_BITS: Final = 4
BLOCK_TOKENS: Final = 1 << BLOCK_BITS  # 16, as in the paper
