"""What is installed where: extras, images, environment."""

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def closure(extra: str) -> set[str]:
    """Names of all distributions that `distserve[extra]` installs on this machine."""
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [Requirement(f"distserve[{extra}]")]
    while todo:
        wanted = todo.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            lines = requires(wanted.name) or []
        except PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            extras = wanted.extras or {""}
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in extras):
                todo.append(requirement)
    return {name for name, _ in seen}


@pytest.mark.parametrize("extra", ["operator", "gateway", "cli"])
def test_only_the_worker_installs_torch(extra: str) -> None:
    assert "torch" not in closure(extra)


def test_the_worker_installs_torch() -> None:
    assert "torch" in closure("worker")


def test_transformers_is_a_test_dependency_only() -> None:
    for extra in ("operator", "gateway", "worker", "cli"):
        assert "transformers" not in closure(extra), extra


@pytest.mark.parametrize(
    ("target", "extras", "module"),
    [
        ("operator", "operator", "distserve_operator"),
        ("gateway", "gateway", "distserve_worker.gateway"),
        ("worker", "worker,gpu", "distserve_worker.server"),  # one image for fleets of either kind
    ],
)
def test_an_image_target_installs_its_extras_and_runs_its_module_as_a_plain_user(
    target: str, extras: str, module: str
) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    stage = re.search(rf"^FROM \S+ AS {target}\n(.*?)(?=^FROM |\Z)", dockerfile, re.MULTILINE | re.DOTALL)
    assert stage is not None
    assert f"RUN scripts/install python3 {extras}\n" in stage[1]
    assert "USER 65532\n" in stage[1]
    assert f'ENTRYPOINT ["python", "-m", "{module}"]' in stage[1]


def test_every_installed_version_is_pinned_once() -> None:
    pins = [re.match(r"[\w.-]+", line) for line in (ROOT / "constraints.txt").read_text().splitlines()]
    names = [canonicalize_name(pin[0]) for pin in pins if pin]
    pinned = set(names)
    for extra in ("operator", "gateway", "worker", "gpu", "cli", "test", "dev"):
        assert closure(extra) - {"distserve"} <= pinned, extra
