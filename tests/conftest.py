"""The model that most tests run on, which tests stay in one process, and how examples are chosen."""

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from distserve_devcluster.weights import fetch_weights

if TYPE_CHECKING:
    import transformers

# The same examples in every run, however slow the machine is just then.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

# Their tests share clusters or processes that take long to start. The first ones take longest, and so start first.
TOGETHER: Final = ("tests/e2e/", "tests/gateway/", "tests/server/", "tests/operator/", "tests/devcluster/")
# Inside of those, but in need of no process.
APART: Final = ("tests/operator/placement/",)


def unit(file: str) -> str:
    """What one process runs as a whole: a folder of `TOGETHER`, else the file."""
    folder = next((folder for folder in TOGETHER if file.startswith(folder)), file)
    return file if file.startswith(APART) else folder


class ByUnit(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out units in the order in which their tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByUnit:
    config.option.loadscopereorder = False
    return ByUnit(config, log)


def pytest_configure() -> None:
    # a shell ignores it for what runs in the background, and so would every process that a test starts and interrupts
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {folder: place for place, folder in enumerate(TOGETHER)}
    items.sort(key=lambda item: order.get(unit(item.nodeid.partition("::")[0]), len(order)))


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What killed processes leave of temporary files, keys of clusters among them, goes with the session's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("t")))
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """What an engine computes on; ranks share the GPUs that there are."""
    from distserve_testing.devices import shared_device

    with shared_device(request.param) as name:
        yield name


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
