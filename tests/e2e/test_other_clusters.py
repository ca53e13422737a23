"""The tests of this folder run on a cluster that they did not start, too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from distserve_testing.deployed import Deployed
from distserve_testing.other_clusters import OTHER_CLUSTER

from distserve_devcluster.cluster import ClusterSpec

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
FOLDER = Path(__file__).parent


def test_a_kubeconfig_is_enough_except_for_those_that_break_the_cluster(smollm2: Deployed, spec: ClusterSpec) -> None:
    smollm2.wait_condition("Ready", "True")
    served = [
        f"{FOLDER}/test_answers.py::test_openai_python_talks_to_it",
        f"{FOLDER}/test_control_plane.py::test_without_a_usable_pair_the_endpoint_says_why_it_cannot_serve",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *served, f"{FOLDER}/test_kills.py"]
    environment = os.environ | {OTHER_CLUSTER: str(spec.state.path / "kubeconfig")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed, 4 skipped" in done.stdout
    assert f"needs the local one, so a run without {OTHER_CLUSTER}" in done.stdout
    assert smollm2.condition("Ready")["status"] == "True", "a deployment that was there before stays"
