"""Builds the engine on its thread and puts a name on whatever goes wrong with that."""

from typing import Literal

from distserve_proto.contract import ExitReason, Role
from distserve_worker.engine.interface import Engine
from distserve_worker.server.arguments import WorkerConfig
from distserve_worker.server.failures import WorkerFailure
from distserve_worker.server.pinning import pin_torch
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.locating import locate


def load_engine(config: WorkerConfig, threads: int) -> Engine:
    """Find the model, load it and set the KV memory aside. Raises `WorkerFailure`."""
    try:
        model = locate(config.model)
    except ModelNotFound as error:
        raise WorkerFailure(ExitReason.MODEL_NOT_FOUND, str(error)) from error
    pin_torch(threads)
    # imported here, on the engine thread: importing torch takes seconds, in which probes must be answered
    from distserve_worker.engine.building import EngineConfig, ModelDoesNotFit, build_engine

    role: Literal["prefill", "decode"] = "prefill" if config.role is Role.PREFILL else "decode"
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
    try:
        return build_engine(engine_config)
    except ModelInvalid as error:
        raise WorkerFailure(ExitReason.MODEL_INVALID, str(error)) from error
    except ModelDoesNotFit as error:
        raise WorkerFailure(ExitReason.MODEL_DOES_NOT_FIT, str(error)) from error
