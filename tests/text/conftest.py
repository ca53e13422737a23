"""The model's text under test and the reference it must equal."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from distserve_worker.text.loading import load_text
from distserve_worker.text.tokenizer import ModelText, Tokenizer


@pytest.fixture(scope="session")
def smollm2_text(smollm2_path: Path) -> ModelText:
    return load_text(smollm2_path)


@pytest.fixture(scope="session")
def tokenizer(smollm2_text: ModelText) -> Tokenizer:
    return smollm2_text.tokenizer


@pytest.fixture(scope="session")
def converted_reference(smollm2_path: Path) -> Any:
    """Transformers' tokenizer of the same file, as it converts it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2_path.parent, gguf_file=smollm2_path.name)


@pytest.fixture(scope="session")
def reference(smollm2_path: Path) -> Any:
    """The same with the cut that the file names, which the conversion leaves out: single digits, then words.

    It is the cut in the model's own tokenizer.json; without it a run of spaces or line ends before a digit becomes
    other tokens than those that the model was trained on.
    """
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(smollm2_path.parent, gguf_file=smollm2_path.name)
    cut = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])
    reference.backend_tokenizer.pre_tokenizer = cut
    return reference
