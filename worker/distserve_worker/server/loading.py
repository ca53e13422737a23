"""Builds the engine on its thread and puts a name on whatever goes wrong with that."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from distserve_proto.contract import ExitReason, Role
from distserve_worker.engine.interface import Engine
from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.arguments import WorkerConfig
from distserve_worker.server.pinning import pin_torch
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.locating import locate
from distserve_worker.weights.tokenizer_digest import tokenizer_digest


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine, and what the server knows of it besides."""

    engine: Engine
    tokenizer_digest: str  # of the tokenizer that belongs to its weights
    max_step_tokens: int


def load(config: WorkerConfig, threads: int) -> Loaded:
    """Find the model, load it and set the KV memory aside. Raises `WorkerFailure`."""
    _check_device(config.device)
    with _named(config.model):
        model = locate(config.model)
        digest = tokenizer_digest(model)  # first: a damaged file is found before torch is imported
    pin_torch(threads)
    with _named(config.model):
        engine = _engine(config, model)
    return Loaded(engine, digest, _max_step_tokens(config, engine))


def _check_device(device: str) -> None:
    """Transports reach the memory of the CPU only; to compute there unasked would waste a GPU in silence."""
    if device != "cpu":
        text = f"--device: this version computes on cpu only, a {device} device would stay idle"
        raise WorkerFailure(ExitReason.CONFIGURATION_INVALID, text)


@contextmanager
def _named(uri: str) -> Iterator[None]:
    """Put the reason on what is wrong with the model at `uri`."""
    try:
        yield
    except ModelNotFound as error:
        raise WorkerFailure(ExitReason.MODEL_NOT_FOUND, str(error)) from error
    except ModelInvalid as error:
        raise WorkerFailure(ExitReason.MODEL_INVALID, str(error)) from error
    except OSError as error:  # it is there, but cannot be read
        raise WorkerFailure(ExitReason.MODEL_NOT_FOUND, f"{uri}: {error}") from error


def _max_step_tokens(config: WorkerConfig, engine: Engine) -> int:
    """A prefill batch, or one long prompt alone; one token for each request of a decode batch."""
    if config.role is Role.DECODE:
        return config.max_running
    return max(config.max_batch_tokens, engine.description.max_model_length)


def _engine(config: WorkerConfig, model: Path) -> Engine:
    # imported here, on the engine thread: importing torch takes seconds, in which probes must be answered
    from distserve_worker.engine.building import ConfigurationInvalid, EngineConfig, ModelDoesNotFit, build_engine

    role: Literal["prefill", "decode"] = "prefill" if config.role is Role.PREFILL else "decode"
    try:
        engine_config = EngineConfig(
            role=role,
            model=model,
            kv_cache_bytes=config.kv_cache_bytes,
            dtype=config.dtype,
            max_model_length=config.max_model_length,
            max_batch_tokens=config.max_batch_tokens,
            max_running=config.max_running,
            max_waiting=config.max_waiting,
        )
        return build_engine(engine_config)
    except ConfigurationInvalid as error:
        raise WorkerFailure(ExitReason.CONFIGURATION_INVALID, str(error)) from error
    except ModelDoesNotFit as error:
        raise WorkerFailure(ExitReason.MODEL_DOES_NOT_FIT, str(error)) from error
