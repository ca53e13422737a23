"""How a GGUF file's `tokenizer.ggml.pre` cuts text before byte-pair encoding."""

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenization:
    """A cut, and whether a piece that is a whole token is taken without running the merges."""

    build: Callable[[], PreTokenizer]
    ignore_merges: bool = False


class UnknownPreTokenizerError(ValueError):
    """The file names a cut that this table lacks; text would silently become other tokens."""


def _digits_then_words() -> PreTokenizer:
    return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])


def _words() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False, use_regex=True)


def _llama3() -> PreTokenizer:
    words = Split(Regex(_LLAMA3), behavior="isolated", invert=False)
    return Sequence([words, ByteLevel(add_prefix_space=False, use_regex=False)])


PRE_TOKENIZATIONS = {
    "gpt-2": PreTokenization(_words),
    "llama-bpe": PreTokenization(_llama3, ignore_merges=True),
    "smollm": PreTokenization(_digits_then_words),
}


def pre_tokenization(name: str) -> PreTokenization:
    """The cut called `name`. Raises `UnknownPreTokenizerError` with the names that are known."""
    try:
        return PRE_TOKENIZATIONS[name]
    except KeyError:
        known = ", ".join(sorted(PRE_TOKENIZATIONS))
        raise UnknownPreTokenizerError(f"tokenizer.ggml.pre is {name!r}; supported: {known}") from None
