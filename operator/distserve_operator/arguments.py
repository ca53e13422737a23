"""Command line of the operator."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from distserve_operator.api.settings import ImageSource, WorkloadSettings


@dataclass(frozen=True, slots=True)
class Arguments:
    """`namespaces` is None when all are watched."""

    namespaces: tuple[str, ...] | None
    workloads: WorkloadSettings
    health_port: int
    resync_seconds: float
    log_level: str
    check: bool


def parse_arguments(arguments: Sequence[str] | None = None) -> Arguments:
    """Read the flags; a wrong one ends the process with a message that names it."""
    found = _parser().parse_args(arguments)
    secrets = tuple(found.image_pull_secret)
    return Arguments(
        namespaces=None if found.all_namespaces else tuple(dict.fromkeys(found.namespace)),
        workloads=WorkloadSettings(
            worker=ImageSource(found.worker_image, found.image_pull_policy, secrets),
            gateway=ImageSource(found.gateway_image, found.image_pull_policy, secrets),
            gateway_cluster_role=found.gateway_cluster_role,
        ),
        health_port=found.health_port,
        resync_seconds=found.resync_seconds,
        log_level=found.log_level,
        check=found.check,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m distserve_operator",
        description="Turns DistServeDeployments into running pods and keeps them so.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--namespace", action="append", help="namespace to watch; may be repeated")
    where.add_argument("--all-namespaces", action="store_true", help="watch all of them")
    add("--worker-image", required=True, help="image of worker pods")
    add("--gateway-image", required=True, help="image of gateway pods")
    add(
        "--image-pull-policy", choices=("Always", "IfNotPresent", "Never"), default="IfNotPresent", help="of those pods"
    )
    add("--image-pull-secret", action="append", default=[], help="Secret in the deployment's namespace; repeatable")
    add("--gateway-cluster-role", default="distserve-gateway", help="ClusterRole that gateways are bound to")
    add("--health-port", type=_port, default=8080, help="of /healthz and /readyz")
    add("--resync-seconds", type=_seconds, default=60.0, help="how often everything is compared with the API server")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info", help="least level that is logged")
    add("--check", action="store_true", help="only say whether the custom resource and all rights are there")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{seconds:g} is not in 1 to 3600")
    return seconds


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 65536:
        raise argparse.ArgumentTypeError(f"{port} is not in 1 to 65535")
    return port
