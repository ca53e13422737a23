"""The model that most tests run on."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distserve_devcluster.weights import fetch_weights

if TYPE_CHECKING:
    import transformers


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of one folder share processes and clusters, so they stay in one process of `pytest -n`.

    Those that need a cluster share that, and wait most of the time, so they are apart from the others.
    """
    root = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(root).parts[0]
        needs_cluster = item.get_closest_marker("cluster") is not None
        item.add_marker(pytest.mark.xdist_group(f"{folder} on a cluster" if needs_cluster else folder))


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
