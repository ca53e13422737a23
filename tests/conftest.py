"""The model that most tests run on."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distserve_devcluster.weights import fetch_weights

if TYPE_CHECKING:
    import transformers


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file (FP32 norms, Q4_1 and Q8_0 matrices), downloaded once into the cache."""
    return fetch_weights(print)


@pytest.fixture(scope="session")
def smollm2_reference(smollm2_path: Path) -> "transformers.LlamaForCausalLM":
    """The same weights in transformers, FP32; see `distserve_testing.reference.require_greedy`."""
    # imported here: it takes seconds, and most tests need no reference
    from distserve_testing.reference import load_reference

    return load_reference(smollm2_path)
