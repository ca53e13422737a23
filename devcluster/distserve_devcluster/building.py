"""Builds the local cluster's programs from their pinned Go modules, once per version of the sources."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from distserve_devcluster.cluster import Programs
from distserve_devcluster.errors import DevClusterError, LoggedError
from distserve_devcluster.locations import GO_SOURCES, programs_folder
from distserve_devcluster.locking import exclusive
from distserve_devcluster.pruning import hold, prune

Say = Callable[[str], None]

BUILD_TIMEOUT_SECONDS = 1800
REPORT_SECONDS = 30
KUBERNETES_VERSION = "v1.36.3"
_VERSION_FLAGS = " ".join(
    f"-X {package}.{variable}={value}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for variable, value in (("gitVersion", KUBERNETES_VERSION), ("gitMajor", "1"), ("gitMinor", "36"))
)


@dataclass(frozen=True, slots=True)
class Product:
    """Programs that are built together: the module's folder, its packages, and how long they take at first."""

    title: str
    module: Path
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    first_build: str
    linker_flags: str = "-s -w"
    links: tuple[tuple[str, str], ...] = ()

    def sources(self) -> list[Path]:
        """Every file that decides what is built, in a stable order; nested modules are products of their own."""
        nested = {path.parent for path in self.module.glob("*/go.mod")}
        files = [*self.module.rglob("*.go"), self.module / "go.mod", self.module / "go.sum"]
        return sorted(path for path in files if nested.isdisjoint(path.parents))

    def version(self) -> str:
        """A hash of the sources and of how they are built."""
        digest = hashlib.sha256(repr((self.packages, self.linker_flags, self.links)).encode())
        for path in self.sources():
            digest.update(f"\n{path.relative_to(self.module)}\n".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()[:20]


CLUSTER = Product(
    title="the local cluster (Kubernetes and its node)",
    module=GO_SOURCES,
    packages=(".", "./container-shim"),
    programs=("devcluster", "container-shim"),
    first_build="4 to 6 minutes",
    linker_flags=f"-s -w {_VERSION_FLAGS}",
    links=(("kubectl", "devcluster"),),
)
HELM = Product(
    title="Helm",
    module=GO_SOURCES / "helm",
    packages=("helm.sh/helm/v4/cmd/helm",),
    programs=("helm",),
    first_build="1 to 2 minutes",
)


def build_programs(say: Say) -> Programs:
    """Everything that a cluster needs, from the cache or built now.

    Raises:
        DevClusterError: Go is missing or too old, a download or a build failed, or there is no checkout.
    """
    cluster, helm = build(CLUSTER, say), build(HELM, say)
    return Programs(devcluster=cluster / "devcluster", kubectl=cluster / "kubectl", helm=helm / "helm")


def build(product: Product, say: Say) -> Path:
    """The folder with the product's programs, kept as long as this process lives.

    Two processes that need it at once build it once. The older builds that nobody uses are removed after a new one.
    """
    if not (product.module / "go.mod").exists():
        raise DevClusterError(
            f"{product.title} is built from a checkout of the sources; {product.module} has no go.mod"
        )
    target = programs_folder() / product.version()
    if hold(target):
        return target
    with exclusive(programs_folder() / "build.lock", BUILD_TIMEOUT_SECONDS):
        if not hold(target):
            _build_into(target, product, say)
            hold(target)
            prune(target.parent, product.programs[0])
    return target


def _build_into(target: Path, product: Product, say: Say) -> None:
    check_go(product.module / "go.mod")
    for unfinished in target.parent.glob(".building-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    room = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
    try:
        log = target.parent / f"{target.name}.log"
        log.write_text("")
        say(f"downloading the Go modules of {product.title}")
        _run(["go", "mod", "download"], product.module, log, say)
        say(f"building {product.title}; the first time takes {product.first_build} on 2 cores")
        command = ["go", "build", "-v", "-p", "2", "-trimpath", "-ldflags", product.linker_flags, "-o", f"{room}/"]
        _run([*command, *product.packages], product.module, log, say)
        for link, program in product.links:
            (room / link).symlink_to(program)
        room.chmod(0o755)
        room.rename(target)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def check_go(module_file: Path) -> None:
    """Raise DevClusterError unless a Go is on the PATH that is as new as the module asks for."""
    wanted = re.search(r"^go (\d+)\.(\d+)", module_file.read_text(), re.MULTILINE)
    assert wanted is not None
    need = f"Go {wanted[1]}.{wanted[2]} or newer is needed to build the local cluster (https://go.dev/dl)"
    try:
        done = subprocess.run(
            ["go", "env", "GOVERSION"], capture_output=True, text=True, check=True, timeout=60, env=_environment()
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DevClusterError(f"{need}; `go` does not run: {error}") from error
    found = re.match(r"go(\d+)\.(\d+)", done.stdout.strip())
    if found is None or (int(found[1]), int(found[2])) < (int(wanted[1]), int(wanted[2])):
        raise DevClusterError(f"{need}; `go` is {done.stdout.strip()}")


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _run(command: list[str], folder: Path, log: Path, say: Say) -> None:
    start = reported = time.monotonic()
    tail: deque[str] = deque(maxlen=20)
    lines = 0
    with (
        log.open("a") as copy,
        subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                copy.write(line)
                tail.append(line)
                lines += 1
                if time.monotonic() - reported > REPORT_SECONDS:
                    reported = time.monotonic()
                    say(f"… {reported - start:.0f} s, {lines} packages so far")
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise LoggedError(f"`{' '.join(command[:3])}` failed:\n{''.join(tail).rstrip()}", log)
    say(f"done in {time.monotonic() - start:.0f} s")
