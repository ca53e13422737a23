"""Where the local cluster's sources, programs, weights and state are on this machine."""

import os
from dataclasses import dataclass
from pathlib import Path

from distserve_devcluster.errors import DevClusterError

CHECKOUT = Path(__file__).resolve().parents[2]
GO_SOURCES = CHECKOUT / "devcluster"


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
    """`$DISTSERVE_STATE/NAME`, or `build/dev/NAME` in the checkout."""
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
        """Locked by whoever starts or stops the cluster."""
        return self.path / "change.lock"

    @property
    def spec(self) -> Path:
        """What the running cluster was asked to be."""
        return self.path / "spec.json"

    def make(self) -> None:
        """Create the folder.

        Raises:
            DevClusterError: it can't be written.
        """
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DevClusterError(
                f"the state folder {self.path} can't be made: {error}; choose another with DISTSERVE_STATE"
            ) from error
