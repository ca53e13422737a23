"""Renders the chart with the Helm that belongs to the local cluster."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from distserve_testing.deployments import ROOT

from distserve_devcluster.building import build_programs

CHART = ROOT / "helm" / "distserve"
Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]


@pytest.fixture(scope="session")
def helm() -> Path:
    """Helm, built once into the cache."""
    return build_programs(print).helm


@pytest.fixture
def try_render(helm: Path, tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """`helm template` with values, whatever comes of it."""

    def run(**values: Any) -> "subprocess.CompletedProcess[str]":
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        command = [str(helm), "template", "distserve", str(CHART), "--namespace", "system", "--values", str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def render(try_render: Callable[..., "subprocess.CompletedProcess[str]"]) -> Render:
    """The objects that the chart makes of values."""

    def run(**values: Any) -> list[Manifest]:
        done = try_render(**values)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return run
