"""A cluster that somebody else started, for tests that need nothing but its API."""

import os
from pathlib import Path

from distserve_devcluster.building import build_programs
from distserve_devcluster.cluster import Cluster

OTHER_CLUSTER = "DISTSERVE_E2E_KUBECONFIG"


def other_kubeconfig() -> Path | None:
    """The file that the environment names instead of a local cluster."""
    named = os.environ.get(OTHER_CLUSTER)
    return Path(named) if named else None


def other_cluster(kubeconfig: Path) -> Cluster:
    """The cluster behind it: nothing is known about its components and containers."""
    assert kubeconfig.is_file(), f"{OTHER_CLUSTER}={kubeconfig}: there is no such file"
    programs = build_programs(print)
    nowhere = Path(os.devnull)
    return Cluster("other", "ready", kubeconfig, "", nowhere, programs.kubectl, programs.helm, (), (), ())
