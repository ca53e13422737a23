"""What can go wrong around a local cluster, told so that a person can act on it."""

from pathlib import Path


class DevClusterError(Exception):
    """A local cluster could not be built, started, reached or changed."""


class LoggedError(DevClusterError):
    """A program failed and wrote more into a log than a message can hold."""

    def __init__(self, message: str, log: Path) -> None:
        super().__init__(f"{message}\n  read the log: {log}")
        self.log = log
