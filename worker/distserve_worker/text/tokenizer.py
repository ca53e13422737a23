"""Text to token ids and back for one model."""

from dataclasses import dataclass

import tokenizers

from distserve_worker.text.chat_template import ChatTemplate
from distserve_worker.text.detokenizer import Detokenizer
from distserve_worker.text.token_bytes import TokenBytes, token_bytes
from distserve_worker.weights.config import ModelConfig


class TextTooLongError(ValueError):
    """A text has more tokens than asked for; `at_least` is a lower bound that was cheap to find."""

    def __init__(self, at_least: int) -> None:
        super().__init__(f"the text has at least {at_least} tokens")
        self.at_least = at_least


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The model's vocabulary; safe to use from several threads."""

    backend: tokenizers.Tokenizer
    pieces: TokenBytes
    longest_token_bytes: int | None  # unknown where text is changed before it is cut
    vocabulary_size: int  # of the model, which may be larger than the tokenizer's
    stop_token_ids: frozenset[int]

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer, config: ModelConfig) -> "Tokenizer":
        """Wrap the tokenizer of the model that `config` describes. Raises `UnsupportedDecoderError`."""
        backend.no_truncation()
        backend.no_padding()
        pieces = token_bytes(backend)
        longest = _longest_token_bytes(backend, pieces) if backend.normalizer is None else None
        # files use -1 and the like for a token that there is not
        stops = frozenset(token for token in config.eos_token_ids if 0 <= token < config.vocab)
        return cls(backend, pieces, longest, config.vocab, stops)

    def encode(self, text: str, *, add_special_tokens: bool, at_most: int | None = None) -> tuple[int, ...]:
        """Token ids of `text`; with special tokens the model's BOS or EOS is added where its tokenizer says so.

        Raises `TextTooLongError` for a text that cannot be `at_most` tokens, without spending the time to tokenize it.
        """
        if at_most is not None and self.longest_token_bytes is not None:
            at_least = -(-len(text.encode()) // self.longest_token_bytes)
            if at_least > at_most:
                raise TextTooLongError(at_least)
        # a batch of one, because only batches let other threads run meanwhile
        [encoding] = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return tuple(encoding.ids)

    def detokenizer(self) -> Detokenizer:
        """A new incremental decoder for one output."""
        return Detokenizer(self.pieces)


def _longest_token_bytes(backend: tokenizers.Tokenizer, pieces: TokenBytes) -> int:
    """The most bytes of text that one token can stand for; control tokens are written out in text too."""
    written = max((len(token.content.encode()) for token in backend.get_added_tokens_decoder().values()), default=1)
    return max(written, *(len(pieces.of(token)) for token in range(backend.get_vocab_size())))


@dataclass(frozen=True, slots=True)
class ModelText:
    """Everything that turns API text into tokens and back; not every model can chat."""

    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
