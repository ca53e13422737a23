"""Models of a hub located here, or by a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from distserve_testing.hub_client import client_with
from distserve_testing.hubs import REPOSITORY, Hub
from distserve_worker.weights import locating
from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.patience import Patience

WAIT_SECONDS: Final = 60
_LOCATE: Final = """
import logging, sys
from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.locating import locate
from distserve_worker.weights.patience import Patience
logging.basicConfig(level=logging.INFO)
try:
    print(locate(sys.argv[1], patience=Patience(pause_seconds=0.01)))
except ModelNotFound as error:
    print("ModelNotFound:", error)
"""


class Located:
    """`locate(REPOSITORY)` in a process of its own; `before` is what it does first."""

    def __init__(self, environment: dict[str, str], before: str = "") -> None:
        command = [sys.executable, "-c", before + _LOCATE, REPOSITORY]
        self.process = subprocess.Popen(
            command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ended(self) -> tuple[str, str]:
        """The answer, and what was logged."""
        try:
            answer, log = self.process.communicate(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            answer, log = self.process.communicate()
        assert self.process.returncode == 0, log
        return answer.strip(), log


def answered(
    environment: Mapping[str, str],
    uri: str = REPOSITORY,
    files: Sequence[str] = locating.ALL_FILES,
    still_seconds: float = WAIT_SECONDS,
) -> str:
    """The folder, or what is wrong, as a process with this environment says it."""
    with client_with(environment):
        try:
            return str(locating.locate(uri, files, patience=Patience(0.01, still_seconds)))
        except ModelNotFound as error:
            return f"ModelNotFound: {error}"


def located(hub: Hub, home: Path, uri: str = REPOSITORY, **environment: str) -> str:
    """The folder, or what is wrong, for a process that uses this hub and this cache."""
    return answered(hub.environment(home) | environment, uri)
