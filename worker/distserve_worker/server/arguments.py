"""Command line of a worker process."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

from distserve_proto.addresses import format_address
from distserve_proto.contract import (
    ENV_POD_IP,
    MAX_RUNNING,
    WORKER_DATA_PORT,
    WORKER_GRPC_PORT,
    WORKER_HTTP_PORT,
    WORKER_ROLES,
    ExitReason,
    Role,
)
from distserve_worker import flags
from distserve_worker.engine.blueprint import DEVICES, KV_DTYPE
from distserve_worker.exiting import TERMINATION_LOG, WorkerFailure
from distserve_worker.server.quantities import parse_bytes

AUTO: Final = "auto"
_POSITIVE: Final = flags.integer(1, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Everything a worker is told at start."""

    role: Role
    model: str
    served_name: str
    dtype: str
    device: str
    max_model_length: int | None
    kv_cache_bytes: int | None  # None: all that is left of the GPUs
    tp: int
    pp: int
    max_batch_tokens: int
    chunk_tokens: int | None
    max_running: int
    max_waiting: int
    host: str
    advertise_host: str
    grpc_port: int
    data_port: int
    http_port: int
    lease_seconds: float
    drain_seconds: float


def parse_arguments(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> WorkerConfig:
    """Read the flags. Raises `WorkerFailure` (ConfigurationInvalid) naming the flag."""
    found = _parser(environment).parse_args(arguments)
    if not found.advertise_host:
        raise _invalid(f"--advertise-host is not set and neither is ${ENV_POD_IP}")
    try:
        format_address(found.advertise_host, 0)
    except ValueError as error:
        raise _invalid(f"--advertise-host: {error}") from error
    if found.kv_cache_bytes is None and found.device == "cpu":
        raise _invalid(f"--kv-cache-memory {AUTO} is for --device cuda: give a quantity, as 2Gi")
    settings = vars(found)
    del settings["termination_log"]  # which `termination_log_of` reads
    return WorkerConfig(**settings)


def _invalid(text: str) -> WorkerFailure:
    return WorkerFailure(ExitReason.CONFIGURATION_INVALID, text)


def termination_log_of(arguments: Sequence[str]) -> Path:
    """The file of that flag, whatever is wrong with the others; the usual one if nothing is given."""
    try:
        found, _ = _termination_log().parse_known_args(arguments)
    except argparse.ArgumentError:  # the flag without a file
        return TERMINATION_LOG
    return Path(found.termination_log)


def _termination_log() -> argparse.ArgumentParser:
    """That flag alone: it is needed when others cannot be read."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    what = "where the reason of a failure is left"
    parser.add_argument("--termination-log", type=Path, default=TERMINATION_LOG, help=what)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Never:
        raise _invalid(message)


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m distserve_worker.server",
        description="Serve one phase of a model, or both.",
        parents=[_termination_log()],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    _add_model_flags(parser)
    _add_limit_flags(parser)
    _add_network_flags(parser, environment)
    return parser


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--role", type=Role, choices=WORKER_ROLES, required=True, help="phase to serve, or both")
    add("--model", required=True, help="path or URI (file://, hf://) of the weights")
    add("--served-name", required=True, help="model name that clients use")
    add("--dtype", choices=tuple(KV_DTYPE), default="FP32", help="of weights and KV cache; INT8: of matrices only")
    add("--device", choices=DEVICES, default="cpu", help="what the pod was given to compute on")
    add("--tp", type=_POSITIVE, default=1, help="ranks that share each layer")
    add("--pp", type=_POSITIVE, default=1, help="stages that the layers are cut into; tp * pp processes in all")
    add("--max-model-length", type=_POSITIVE, help="prompt + output tokens of a request; default: what fits")


def _add_limit_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    cache = "quantity, of all ranks together; auto: all that is left of their GPUs"
    add("--kv-cache-memory", dest="kv_cache_bytes", type=_cache, default="1Gi", help=cache)
    add("--max-batch-tokens", type=_POSITIVE, default=512, help="new tokens of a prefill batch (L_m)")
    add(
        "--chunk-tokens", type=_POSITIVE, help="tokens of a step into which prompts are cut; default: prompts are whole"
    )
    add("--max-running", type=_POSITIVE, default=MAX_RUNNING, help="requests that get a token in one step")
    add("--max-waiting", type=_POSITIVE, default=256, help="requests that may queue")
    add("--lease-seconds", type=flags.seconds, default=30.0, help="life of a parked KV cache nobody renews")
    add("--drain-seconds", type=flags.seconds, default=30.0, help="time to finish running requests after SIGTERM")


def _add_network_flags(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    add = parser.add_argument
    add("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - pods are reached on their own address
    add("--advertise-host", default=environment.get(ENV_POD_IP), help="address that other pods connect to")
    add("--grpc-port", type=flags.port, default=WORKER_GRPC_PORT, help="0: any free port")
    add("--data-port", type=flags.port, default=WORKER_DATA_PORT, help="of the KV data; 0: any free port")
    add("--http-port", type=flags.port, default=WORKER_HTTP_PORT, help="0: any free port")


def _cache(text: str) -> int | None:
    return None if text == AUTO else flags.told(parse_bytes, text)
