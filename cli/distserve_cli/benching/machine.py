"""Where a benchmark ran, for the file that it writes."""

import platform
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any


def machine_with(*packages: str) -> dict[str, Any]:
    """Architecture, processor, and versions of Python and of what was measured."""
    versions = {"python": platform.python_version(), **{package: version(package) for package in packages}}
    return {"machine": platform.machine(), "processor": _processor(), "versions": versions}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:  # noqa: PTH123
            lines: Iterable[str] = info.read().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
