"""Equal digests mean that token ids stand for the same text."""

from pathlib import Path
from typing import Any

import pytest
from distserve_testing.models import LLAMA_METADATA, write_gguf

from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.tokenizer_digest import TOKENIZER_FILES, tokenizer_digest

TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b"],
    "tokenizer.ggml.scores": [0.5, 1.5],
    "tokenizer.chat_template": "{{ messages }}",
}


def of_gguf(folder: Path, **changes: Any) -> str:
    return tokenizer_digest(write_gguf(folder / "model.gguf", {**LLAMA_METADATA, **TOKENIZER, **changes}))


def of_folder(folder: Path, contents: dict[str, str]) -> str:
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_text(content)
    return tokenizer_digest(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer.ggml.tokens", ["b", "a"]),
        ("tokenizer.ggml.tokens", ["a", "b", "c"]),
        ("tokenizer.ggml.pre", "smollm"),
        ("tokenizer.chat_template", "{{ messages[0] }}"),
    ],
)
def test_another_vocabulary_or_template_in_a_gguf_file_is_another_digest(tmp_path: Path, key: str, value: Any) -> None:
    assert of_gguf(tmp_path, **{key: value}) != of_gguf(tmp_path)


def test_other_weights_with_the_same_tokenizer_have_the_same_digest(tmp_path: Path) -> None:
    assert of_gguf(tmp_path, **{"llama.block_count": 30}) == of_gguf(tmp_path)


@pytest.mark.parametrize("name", TOKENIZER_FILES)
def test_each_file_of_a_folder_counts_whether_it_is_there_or_not(tmp_path: Path, name: str) -> None:
    contents = dict.fromkeys(TOKENIZER_FILES, "{}")
    fewer = {other: content for other, content in contents.items() if other != name}
    digests = {
        of_folder(tmp_path / "all", contents),
        of_folder(tmp_path / "changed", {**contents, name: "{ }"}),
        of_folder(tmp_path / "fewer", fewer),
    }
    assert len(digests) == 3


def test_files_that_do_not_concern_the_tokenizer_do_not_count(tmp_path: Path) -> None:
    contents = dict.fromkeys(TOKENIZER_FILES, "{}")
    assert of_folder(tmp_path / "one", contents) == of_folder(tmp_path / "other", {**contents, "config.json": "{}"})


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(b"GGUF and nothing more")
    with pytest.raises(ModelInvalid, match=r"damaged\.gguf"):
        tokenizer_digest(path)
