"""Gateways in front of real workers: a tiny model with SmolLM2's vocabulary for most tests, SmolLM2 itself for some."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.models import write_tiny_llama
from distserve_testing.workers import Pair, WorkerProcess, started_pair

from distserve_worker.gateway.answer import Answer
from distserve_worker.text.loading import load_text
from distserve_worker.text.stop_strings import StopStrings
from distserve_worker.text.tokenizer import ModelText

LIMITS = {"max_model_length": 4096, "kv_cache_memory": "64Mi", "max_batch_tokens": 256}

TEMPLATE = """\
{% for m in messages %}
{% if m.content == "refuse me" %}{{ raise_exception("no, thank you") }}{% endif %}
{% if m.content.startswith("repeat me") %}{{ raise_exception(m.content) }}{% endif %}
{{ m.role }}: {{ m.content }}
{% endfor %}
assistant:"""

StartGateway = Callable[..., GatewayProcess]


@pytest.fixture(scope="session")
def smollm2_text(smollm2_path: Path) -> ModelText:
    return load_text(smollm2_path)


@pytest.fixture
def answer(smollm2_text: ModelText) -> Answer:
    """An empty one."""
    return Answer(smollm2_text.tokenizer.detokenizer(), StopStrings([]), lambda: None)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory, smollm2_text: ModelText) -> Path:
    """A folder with random weights and SmolLM2's tokenizer; its text is nonsense, and always the same nonsense."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    write_tiny_llama(folder, vocab_size=49152, max_position_embeddings=4096)
    smollm2_text.tokenizer.backend.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
def start_gateway(tiny_llama: Path, tmp_path: Path) -> Iterator[StartGateway]:
    """Starts gateways that live for one test, in front of workers or of their addresses."""
    started: list[GatewayProcess] = []

    def start(*workers: WorkerProcess | str, model: Path | str = tiny_llama, **flags: Any) -> GatewayProcess:
        addresses = [worker if isinstance(worker, str) else worker.grpc for worker in workers]
        started.append(GatewayProcess(model, addresses, tmp_path, **flags))
        return started[-1]

    yield start
    for gateway in started:
        gateway.kill()


@pytest.fixture(scope="session")
def shared_pair(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A prefill and a decode worker for all tests that leave them empty."""
    with started_pair(tiny_llama, tmp_path_factory.mktemp("pair"), LIMITS, LIMITS) as pair:
        yield pair


@pytest.fixture
def pair(shared_pair: Pair) -> Iterator[Pair]:
    """The shared workers, which every test has to leave empty."""
    with shared_pair.left_empty() as pair:
        yield pair


@pytest.fixture(scope="session")
def shared_gateway(
    tiny_llama: Path, shared_pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway with default flags in front of the shared workers."""
    gateway = GatewayProcess(tiny_llama, shared_pair.addresses, tmp_path_factory.mktemp("gateway"))
    yield gateway.wait_until_usable()
    gateway.kill()


@pytest.fixture
def gateway(shared_gateway: GatewayProcess, pair: Pair) -> GatewayProcess:
    """The shared gateway; the test must leave the workers empty."""
    assert pair
    return shared_gateway


@pytest.fixture(scope="session")
def shared_cramped_pair(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Workers with room for 2720 tokens (170 blocks of 16 tokens and 6 KiB), and one place in the prefill queue."""
    limits = {"max_model_length": 2048, "kv_cache_memory": "1020Ki"}
    folder = tmp_path_factory.mktemp("cramped-pair")
    with started_pair(tiny_llama, folder, limits | {"max_waiting": 1}, limits) as pair:
        yield pair


@pytest.fixture
def cramped_pair(shared_cramped_pair: Pair) -> Iterator[Pair]:
    """The cramped workers, which every test has to leave empty."""
    with shared_cramped_pair.left_empty() as pair:
        yield pair
