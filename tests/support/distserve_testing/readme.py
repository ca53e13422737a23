"""The commands that the README tells people to run on a cluster of their own."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from distserve_devcluster.cluster import Cluster
from distserve_devcluster.images import Image

ROOT = Path(__file__).parents[3]
# There is no docker here: what it would be told is written down.
DOCKER = 'docker() { echo "docker $*"; }\n'


def on_a_cluster() -> tuple[str, str]:
    """Two shell scripts: images and chart; a deployment and a look at it."""
    text = (ROOT / "README.md").read_text()
    (section,) = re.findall(r"^## On a cluster\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    install, deploy = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return install, deploy


def pushed_images(built: Mapping[str, Image]) -> dict[str, Image]:
    """Images under the names that the README's commands push them by; each is the `built` one of its target."""
    lines = _bash(DOCKER + "helm() { :; }\n" + on_a_cluster()[0], dict(os.environ)).splitlines()
    targets = dict(re.findall(r"^docker build --target (\S+) -t (\S+) \.$", "\n".join(lines), re.MULTILINE))
    pushed = set(re.findall(r"^docker push (\S+)$", "\n".join(lines), re.MULTILINE))
    of_target = {name.rpartition("/")[2].partition(":")[0]: image for name, image in built.items()}
    return {name: of_target[target] for target, name in targets.items() if name in pushed}


def run_readme(script: str, cluster: Cluster) -> str:
    """Run the commands against a cluster, with its own kubectl and Helm; returns what they print."""
    programs = {cluster.kubectl.parent, cluster.helm.parent}
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    return _bash(DOCKER + script, os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)})


def _bash(script: str, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout
