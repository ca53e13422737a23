"""Text to token ids and back for one model."""

from dataclasses import dataclass

import tokenizers

from distserve_worker.text.chat_template import ChatTemplate
from distserve_worker.text.detokenizer import Detokenizer
from distserve_worker.text.token_bytes import TokenBytes, token_bytes
from distserve_worker.weights.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The model's vocabulary; safe to use from several threads."""

    backend: tokenizers.Tokenizer
    pieces: TokenBytes
    vocabulary_size: int  # of the model, which may be larger than the tokenizer's
    stop_token_ids: frozenset[int]

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer, config: ModelConfig) -> "Tokenizer":
        """Wrap the tokenizer of the model that `config` describes. Raises `UnsupportedDecoderError`."""
        backend.no_truncation()
        backend.no_padding()
        return cls(backend, token_bytes(backend), config.vocab, config.eos_token_ids)

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Token ids of `text`; with special tokens the model's BOS or EOS is added where its tokenizer says so."""
        return tuple(self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def detokenizer(self) -> Detokenizer:
        """A new incremental decoder for one output."""
        return Detokenizer(self.pieces)


@dataclass(frozen=True, slots=True)
class ModelText:
    """Everything that turns API text into tokens and back; not every model can chat."""

    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
