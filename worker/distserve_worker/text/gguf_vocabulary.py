"""Builds a tokenizer from the metadata of a GGUF file: tokens, token types, merges and the pre-tokenizer's name."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models
from tokenizers.processors import TemplateProcessing

from distserve_worker.text.pre_tokenizers import pre_tokenization


class TokenType(IntEnum):
    """Values of `tokenizer.ggml.token_type` that are not plain text."""

    CONTROL = 3
    USER_DEFINED = 4


class UnsupportedVocabularyError(ValueError):
    """The metadata describes a tokenizer that is not byte-level BPE, or lacks a part of it, or a part is damaged."""


def build_tokenizer(metadata: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """The tokenizer of a GGUF file. Raises `UnsupportedVocabularyError` or `UnknownPreTokenizerError`."""
    _check_model(metadata)
    cut = pre_tokenization(str(metadata.get("tokenizer.ggml.pre", "missing")))
    tokens = _texts(metadata, "tokens")
    merges = [_pair(merge) for merge in _texts(metadata, "merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    try:
        model = models.BPE(vocab=vocabulary, merges=merges, ignore_merges=cut.ignore_merges)
    except Exception as error:  # the library has no type for it
        raise UnsupportedVocabularyError(f"tokenizer.ggml.merges: {error}") from error
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = cut.build()
    tokenizer.decoder = decoders.ByteLevel()
    _add_whole_tokens(tokenizer, metadata, tokens)
    _add_ends(tokenizer, metadata, tokens)
    return tokenizer


def token_text(metadata: Mapping[str, Any], key: str) -> str:
    """Text of the token that `tokenizer.ggml.<key>` names; empty when the file names none."""
    index = metadata.get(f"tokenizer.ggml.{key}")
    return "" if index is None else _token_at(metadata["tokenizer.ggml.tokens"], index, key)


def _check_model(metadata: Mapping[str, Any]) -> None:
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise UnsupportedVocabularyError(
            f"tokenizer.ggml.model is {kind!r}; only 'gpt2' (byte-level BPE) is supported: "
            "use the model's Hugging Face folder with tokenizer.json instead"
        )


def _texts(metadata: Mapping[str, Any], name: str) -> list[str]:
    key = f"tokenizer.ggml.{name}"
    texts = metadata.get(key)
    if not texts:
        raise UnsupportedVocabularyError(f"the GGUF file has no {key}")
    if not (isinstance(texts, list) and isinstance(texts[0], str)):  # all items of an array have one type
        raise UnsupportedVocabularyError(f"{key} is no array of texts")
    return texts


def _token_at(tokens: list[str], index: object, key: str) -> str:
    if not (isinstance(index, int) and 0 <= index < len(tokens)):
        raise UnsupportedVocabularyError(f"tokenizer.ggml.{key} is {index}, there are {len(tokens)} tokens")
    return tokens[index]


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _add_whole_tokens(tokenizer: tokenizers.Tokenizer, metadata: Mapping[str, Any], tokens: list[str]) -> None:
    kinds = metadata.get("tokenizer.ggml.token_type", [])
    if not (isinstance(kinds, list) and len(kinds) in (0, len(tokens))):
        raise UnsupportedVocabularyError(f"tokenizer.ggml.token_type is no array of {len(tokens)} items, one a token")
    control = [tokens[index] for index, kind in enumerate(kinds) if kind == TokenType.CONTROL]
    defined = [tokens[index] for index, kind in enumerate(kinds) if kind == TokenType.USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in defined])


def _add_ends(tokenizer: tokenizers.Tokenizer, metadata: Mapping[str, Any], tokens: list[str]) -> None:
    """Text starts with BOS and ends with EOS only where the file says so."""
    ends = dict(_ends(metadata, tokens))
    if not ends:
        return
    template = " ".join([*ends.get("bos", ()), "$A", *ends.get("eos", ())])
    special = [(text, tokenizer.token_to_id(text)) for texts in ends.values() for text in texts]
    tokenizer.post_processor = TemplateProcessing(single=template, pair=None, special_tokens=special)


def _ends(metadata: Mapping[str, Any], tokens: list[str]) -> Iterator[tuple[str, tuple[str]]]:
    for end in ("bos", "eos"):
        index = metadata.get(f"tokenizer.ggml.{end}_token_id")
        if metadata.get(f"tokenizer.ggml.add_{end}_token", False) and index is not None:
            yield end, (_token_at(tokens, index, f"{end}_token_id"),)
