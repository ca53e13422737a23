"""Command line of the gateway."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from distserve_proto.addresses import parse_address
from distserve_proto.contract import GATEWAY_HTTP_PORT
from distserve_worker import flags
from distserve_worker.exiting import TERMINATION_LOG

_BYTES: Final = flags.integer(1, 2**31)
_MILLISECONDS: Final = flags.number(0.0, 3_600_000.0)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the gateway is told at start."""

    served_name: str
    model: str
    deployment: str | None
    namespace: str
    workers: list[str]
    host: str
    port: int
    isolate_prefixes: bool
    max_requests: int
    max_body_bytes: int
    max_bodies_bytes: int
    send_buffer_bytes: int
    header_seconds: float
    body_seconds: float
    write_seconds: float
    drain_seconds: float
    deadline_base_seconds: float
    deadline_milliseconds_per_token: float
    termination_log: Path
    log_level: str


def parse_settings(arguments: Sequence[str] | None = None) -> Settings:
    """Read the flags; a wrong one ends the process with a message that names it."""
    parser = argparse.ArgumentParser(
        prog="python -m distserve_worker.gateway",
        description="OpenAI-compatible gateway of one deployment.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    _add_model_flags(parser)
    _add_network_flags(parser)
    _add_limit_flags(parser)
    found = parser.parse_args(arguments)
    if bool(found.workers) == bool(found.deployment):
        parser.error("give either --deployment or at least one --worker")
    if found.max_bodies_bytes < found.max_body_bytes:
        parser.error("--max-bodies-bytes is smaller than --max-body-bytes: no body of that size could ever be taken")
    return Settings(**vars(found))


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--served-name", required=True, help="model name that clients use")
    add("--model", required=True, help="path or URI (file://, hf://) of the model's tokenizer")
    add("--deployment", help="DistServeDeployment whose worker pods are watched")
    add("--namespace", default="default", help="of the deployment")
    add("--isolate-prefixes", action="store_true", help="share no KV of equal prompt beginnings among API keys")
    add("--worker", dest="workers", action="append", default=[], type=_address, help="host:port; may be repeated")


def _add_network_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod is reached on its own address
    add("--port", type=flags.port, default=GATEWAY_HTTP_PORT, help="0: any free port")
    add("--termination-log", type=Path, default=TERMINATION_LOG, help="where the reason of a failure is left")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info", help="least level that is logged")


def _add_limit_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--max-requests", type=flags.integer(1, 100_000), default=256, help="requests in flight; more get 429")
    add("--max-body-bytes", type=_BYTES, default=4 * 1024 * 1024, help="of a request")
    add("--max-bodies-bytes", type=_BYTES, default=32 * 1024 * 1024, help="of all requests in flight; more get 429")
    add(
        "--send-buffer-bytes",
        type=flags.integer(2048, 2**31),
        default=65536,
        help="that the kernel holds for a client",
    )
    add(
        "--header-timeout", dest="header_seconds", type=flags.seconds, default=10.0, help="seconds for a request's head"
    )
    add("--body-timeout", dest="body_seconds", type=flags.seconds, default=30.0, help="seconds for a request's body")
    add("--write-timeout", dest="write_seconds", type=flags.seconds, default=30.0, help="seconds a client may not read")
    add("--drain-seconds", type=flags.seconds, default=25.0, help="time to finish streams after SIGTERM")
    add("--deadline-base-seconds", type=flags.seconds, default=60.0, help="time of each leg of a request")
    add("--deadline-milliseconds-per-token", type=_MILLISECONDS, default=200.0, help="on top, per token to get through")


def _address(text: str) -> str:
    return flags.told(lambda value: str(parse_address(value)), text)
