"""Tokenizers out of GGUF metadata and Hugging Face folders."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from distserve_testing.models import LLAMA_METADATA, write_gguf
from tokenizers import AddedToken, decoders, models, normalizers

from distserve_worker.text.gguf_vocabulary import UnsupportedVocabularyError, build_tokenizer
from distserve_worker.text.loading import load_text
from distserve_worker.text.pre_tokenizers import UnknownPreTokenizerError
from distserve_worker.text.token_bytes import UnsupportedDecoderError, token_bytes
from distserve_worker.text.tokenizer import ModelText
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.tokenizer_digest import TOKENIZER_FILES

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "num_attention_heads": 1,
    "intermediate_size": 8,
    "vocab_size": 300,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "eos_token_id": 0,
}
METADATA: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<s>", "</s>", "a", "b", "ab", "<tool>"],
    "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 4],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
}


def _write_folder(folder: Path, backend: tokenizers.Tokenizer, **settings: Any) -> Path:
    backend.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def _word_pieces() -> tokenizers.Tokenizer:
    """A tokenizer in the manner of Llama 2: words start with U+2581, unknown bytes are tokens of their own."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "h", "i", "▁h", "▁hi"]
    vocabulary = {word: index for index, word in enumerate(words)}
    merges = [("▁", "h"), ("▁h", "i")]
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    return backend


def test_a_folder_tokenizes_as_the_file_it_was_made_from(smollm2_text: ModelText, tmp_path: Path) -> None:
    folder = _write_folder(tmp_path, smollm2_text.tokenizer.backend)
    text = "Numbered:\n\n1. naïve 😀<|im_end|>"
    loaded = load_text(folder).tokenizer.encode(text, add_special_tokens=True)
    assert loaded == smollm2_text.tokenizer.encode(text, add_special_tokens=True)


@pytest.mark.parametrize("text", ["hi", "hi hi", " hi", "h😀i", "日本", "hi</s>"])
def test_word_pieces_come_back_as_their_tokenizer_decodes_them(tmp_path: Path, text: str) -> None:
    tokenizer = load_text(_write_folder(tmp_path, _word_pieces())).tokenizer
    tokens = tokenizer.encode(text, add_special_tokens=False)
    detokenizer = tokenizer.detokenizer()
    pieces = [detokenizer.feed([token]) for token in tokens]
    assert "".join(pieces) + detokenizer.finish() == tokenizer.backend.decode(tokens)


def test_a_template_file_wins_over_the_settings(tmp_path: Path) -> None:
    folder = _write_folder(tmp_path, _word_pieces(), chat_template="settings")
    (folder / "chat_template.jinja").write_text("{{ bos_token }}file")
    template = load_text(folder).chat_template
    assert template is not None
    assert template.render([]) == "file"


def test_of_several_named_templates_the_default_one_is_taken(tmp_path: Path) -> None:
    named = [{"name": "rag", "template": "r"}, {"name": "default", "template": "{{ bos_token }}{{ eos_token }}"}]
    folder = _write_folder(
        tmp_path, _word_pieces(), chat_template=named, bos_token="<s>", eos_token={"content": "</s>"}
    )
    template = load_text(folder).chat_template
    assert template is not None
    assert template.render([]) == "<s></s>"


@pytest.mark.parametrize("name", TOKENIZER_FILES)
def test_a_pipe_in_the_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    folder = _write_folder(tmp_path, _word_pieces())
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(ModelNotFound, match=f"/{name}: no regular file but a pipe"):
        load_text(folder)


def test_a_base_model_has_no_template(tmp_path: Path) -> None:
    assert load_text(_write_folder(tmp_path, _word_pieces())).chat_template is None


def test_a_folder_without_a_tokenizer_says_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelInvalid, match=r"tokenizer\.json does not exist"):
        load_text(tmp_path)


def test_gguf_metadata_decides_about_bos_and_eos() -> None:
    ends = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    assert build_tokenizer(METADATA | ends).encode("ab").ids == [0, 4, 1]
    assert build_tokenizer(METADATA).encode("ab").ids == [4]


def test_user_defined_tokens_are_whole_but_leave_their_text() -> None:
    tokenizer = build_tokenizer(METADATA)
    assert tokenizer.encode("a<tool>b").ids == [2, 5, 3]
    assert token_bytes(tokenizer).of(5) == b"<tool>"


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"tokenizer.ggml.model": "llama"}, UnsupportedVocabularyError, "tokenizer.ggml.model is 'llama'"),
        ({"tokenizer.ggml.merges": []}, UnsupportedVocabularyError, "has no tokenizer.ggml.merges"),
        ({"tokenizer.ggml.pre": "klingon"}, UnknownPreTokenizerError, "'klingon'; supported: gpt-2, llama-bpe, smollm"),
    ],
)
def test_metadata_that_is_not_supported_is_named(change: dict[str, Any], error: type[ValueError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        build_tokenizer(METADATA | change)


def test_a_decoder_that_is_not_understood_is_named() -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedDecoderError, match="WordPiece"):
        token_bytes(backend)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bos_token_id": 6}, "tokenizer.ggml.bos_token_id is 6, there are 6 tokens"),
        ({"eos_token_id": 4_000_000_000, "add_eos_token": True}, "tokenizer.ggml.eos_token_id is 4000000000"),
        ({"eos_token_id": "</s>"}, "tokenizer.ggml.eos_token_id is </s>"),
        ({"token_type": [3] * 7}, "tokenizer.ggml.token_type is no array of 6 items"),
        ({"token_type": 3}, "tokenizer.ggml.token_type is no array of 6 items"),
        ({"merges": ["a unknown"]}, "tokenizer.ggml.merges: .*`unknown` out of vocabulary"),
        ({"merges": [1, 2]}, "tokenizer.ggml.merges is no array of texts"),
        ({"tokens": [1, 2, 3, 4, 5, 6]}, "tokenizer.ggml.tokens is no array of texts"),
        ({"tokens": "abc"}, "tokenizer.ggml.tokens is no array of texts"),
        ({"tokens": ["a:1", "</s>", "a", "b", "ab", "t"], "add_bos_token": True}, "Missing SpecialToken"),
        ({"chat_template": 5}, "the chat template is no text but int"),
        ({"chat_template": "{% for %}"}, "chat template, line 1"),
        ({"chat_template": "{{ " + "(" * 3000 + ")" * 3000 + " }}"}, "RecursionError"),
    ],
)
def test_damaged_metadata_is_told_with_the_file(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    changed = {f"tokenizer.ggml.{key}" if "chat" not in key else f"tokenizer.{key}": change[key] for key in change}
    path = write_gguf(tmp_path / "damaged.gguf", {**LLAMA_METADATA, **METADATA, **changed})
    with pytest.raises(ModelInvalid, match=f"damaged.gguf: .*{reason}"):
        load_text(path)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("[]", "tokenizer_config.json: not a JSON object"),
        ("{", "tokenizer_config.json: not JSON"),
        ("[" * 100_000, "tokenizer_config.json: not JSON"),
        ('{"bos_token": {}}', "tokenizer_config.json: bos_token has no text"),
        ('{"eos_token": 5}', "tokenizer_config.json: eos_token has no text"),
        ('{"chat_template": [{"name": "default"}]}', "an item of chat_template has no name or no template"),
        ('{"chat_template": ["default"]}', "an item of chat_template has no name or no template"),
        ('{"chat_template": [{"name": "default", "template": 5}]}', "the chat template is no text but int"),
        ('{"chat_template": {}}', "the chat template is no text but dict"),
    ],
)
def test_damaged_settings_are_told_with_the_folder(tmp_path: Path, settings: str, reason: str) -> None:
    folder = _write_folder(tmp_path, _word_pieces())
    (folder / "tokenizer_config.json").write_text(settings)
    with pytest.raises(ModelInvalid, match=f"{tmp_path.name}: .*{reason}"):
        load_text(folder)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}'])
def test_a_damaged_tokenizer_file_is_told(tmp_path: Path, content: str) -> None:
    folder = _write_folder(tmp_path, _word_pieces())
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(ModelInvalid, match=r"tokenizer\.json: "):
        load_text(folder)


def test_a_tokenizer_that_the_library_gives_up_on_is_told(tmp_path: Path) -> None:
    folder = _write_folder(tmp_path, _word_pieces())
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["continuing_subword_prefix"] = "longer than a token"
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ModelInvalid, match=f"{tmp_path.name}: the tokenizer cannot be built"):
        load_text(folder)


def test_an_end_that_is_no_token_stops_nothing(tmp_path: Path) -> None:
    """The wire has no place for it."""
    folder = _write_folder(tmp_path, _word_pieces())
    (folder / "config.json").write_text(json.dumps(CONFIG | {"eos_token_id": [0, -1, 300, 2**40]}))
    assert load_text(folder).tokenizer.stop_token_ids == frozenset({0})
