"""Runs kubectl and Helm against one cluster, with deadlines and errors that a person can act on."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distserve_cli.demo.narration import StepFailed


@dataclass(frozen=True, slots=True)
class ClusterCommands:
    """kubectl and Helm of one cluster; `logs` is what to read when a command fails."""

    kubectl_path: Path
    helm_path: Path
    kubeconfig: Path
    logs: Path

    def kubectl(self, *arguments: str, timeout_seconds: float = 60) -> str:
        """Standard output of `kubectl ARGUMENTS`."""
        return self._run([str(self.kubectl_path), *arguments], timeout_seconds)

    def helm(self, *arguments: str, timeout_seconds: float = 300) -> str:
        """Standard output of `helm ARGUMENTS`."""
        return self._run([str(self.helm_path), *arguments], timeout_seconds)

    def get(self, *arguments: str) -> dict[str, Any]:
        """One object or list as JSON."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def _run(self, command: list[str], timeout_seconds: float) -> str:
        shown = f"{Path(command[0]).name} {' '.join(command[1:])}"
        try:
            done = subprocess.run(
                [command[0], "--kubeconfig", str(self.kubeconfig), *command[1:]],
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise StepFailed(f"`{shown}` did not end within {timeout_seconds:.0f} s", str(self.logs)) from error
        if done.returncode != 0:
            raise StepFailed(f"`{shown}` failed: {done.stderr.strip() or done.stdout.strip()}", str(self.logs))
        return done.stdout
