"""Where the local cluster's sources, programs, weights and state are on this machine."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from distserve_devcluster.errors import DevClusterError

CHECKOUT = Path(__file__).resolve().parents[2]
GO_SOURCES = CHECKOUT / "devcluster"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/distserve`, or the same below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "distserve"


def programs_folder() -> Path:
    """Built programs, one folder per version of their sources."""
    return cache_folder() / "bin"


def models_folder() -> Path:
    """Weights on disk: what the claim `models` shows to pods."""
    return cache_folder() / "models"


def default_state_folder(name: str) -> Path:
    """`$DISTSERVE_STATE/NAME`, or `build/dev/NAME` in the checkout.

    Raises:
        DevClusterError: the name might lead anywhere else.
    """
    if not _NAME.fullmatch(name):
        raise DevClusterError(
            f"the cluster name {name!r} (--name or DISTSERVE_DEV_NAME) cannot be used:"
            " write at most 40 of a-z, 0-9 and -, the first and last of them no -, such as demo"
        )
    base = os.environ.get("DISTSERVE_STATE")
    return (Path(base) if base else CHECKOUT / "build" / "dev").absolute() / name


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The files of one cluster that its supervisor and this package share."""

    path: Path

    @property
    def images(self) -> Path:
        """Image names and what they start; the supervisor's node reads it at every look-up."""
        return self.path / "images.json"

    @property
    def programs(self) -> Path:
        """Which built programs the cluster was started with."""
        return self.path / "programs.json"

    @property
    def logs(self) -> Path:
        """One log per component."""
        return self.path / "logs"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor and the first process of the namespaces say."""
        return self.logs / "supervisor.log"

    @property
    def sockets(self) -> Path:
        """The unix sockets."""
        return self.path / "run"

    @property
    def owner_lock(self) -> Path:
        """Locked by the running supervisor; holds its process id and start time."""
        return self.path / "lock"

    @property
    def change_lock(self) -> Path:
        """Locked by whoever starts or stops the cluster; a folder with this file in it is a cluster's own."""
        return self.path / "change.lock"

    @property
    def spec(self) -> Path:
        """What the running cluster was asked to be."""
        return self.path / "spec.json"
