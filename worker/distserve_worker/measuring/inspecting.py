"""Looks at the machine: how much memory a process can still take, and what the processor calls itself."""

import platform
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")
# limit, use, and the part of it that the kernel gives back; version 2 and version 1 of control groups
_GROUPS: Final = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat", "inactive_file"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
        "total_inactive_file",
    ),
)


def free_memory(root: Path = _ROOT) -> int:
    """Bytes that are free on the machine, or in the container when it has a limit."""
    machine = 1024 * int(_field(root / "proc/meminfo", "MemAvailable:"))
    limits = (_free_in_group(root, *group) for group in _GROUPS)
    return max(0, min([machine, *(limit for limit in limits if limit is not None)]))


def processor(root: Path = _ROOT) -> str:
    """Its name for people."""
    for line in (root / "proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _free_in_group(root: Path, limit: str, used: str, stat: str, key: str) -> int | None:
    """None: there is no such group, or it has no limit."""
    try:
        most = (root / limit).read_text().strip()
        if most == "max":
            return None
        return int(most) - int((root / used).read_text()) + int(_field(root / stat, key))
    except FileNotFoundError:
        return None


def _field(path: Path, key: str) -> str:
    return next(line.split()[1] for line in path.read_text().splitlines() if line.split()[0] == key)
