"""The local cluster's programs are built once per version of their sources."""

import os
import subprocess
from pathlib import Path

import pytest

from distserve_devcluster.building import CLUSTER, HELM, Product, build, check_go
from distserve_devcluster.errors import DevClusterError, LoggedError
from distserve_devcluster.locations import programs_folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Go keeps its own cache: compiling the standard library anew would take half a minute.
    go_cache = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True, timeout=60)
    monkeypatch.setenv("GOCACHE", go_cache.stdout.strip())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def module(folder: Path, source: str) -> Product:
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module example.com/hello\n\ngo 1.26\n")
    (folder / "go.sum").write_text("")
    (folder / "main.go").write_text(source)
    return Product(title="hello", module=folder, packages=(".",), programs=("hello",), first_build="no time")


HELLO = "package main\n\nfunc main() {}\n"


def test_programs_are_built_once_and_found_again(tmp_path: Path) -> None:
    product = module(tmp_path / "source", HELLO)
    said: list[str] = []
    folder = build(product, said.append)
    assert (folder / "hello").stat().st_mode & 0o111
    assert any(line.startswith("building hello") for line in said)
    assert any(line.startswith("done in ") for line in said)
    said.clear()
    assert build(product, said.append) == folder
    assert not said


def test_old_versions_are_removed_after_a_new_one_is_built(tmp_path: Path) -> None:
    product = module(tmp_path / "source", HELLO)
    old = [programs_folder() / f"old{number}" for number in range(4)]
    for number, folder in enumerate(old):
        folder.mkdir(parents=True)
        (folder / "hello").touch()
        os.utime(folder, (number, number))
    built = build(product, lambda _: None)
    assert {path for path in programs_folder().iterdir() if path.is_dir()} == {built, *old[2:]}


def test_a_changed_source_is_another_version(tmp_path: Path) -> None:
    product = module(tmp_path / "source", HELLO)
    before = product.version()
    (product.module / "main.go").write_text(HELLO + "\n// changed\n")
    assert product.version() != before


def test_a_nested_module_is_a_product_of_its_own(tmp_path: Path) -> None:
    product = module(tmp_path / "source", HELLO)
    before = product.version()
    module(product.module / "nested", HELLO)
    assert product.version() == before
    assert HELM.module / "tools.go" not in CLUSTER.sources()


def test_a_failed_build_names_the_error_and_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    product = module(tmp_path / "source", "package main\n\nfunc main() { nothing() }\n")
    with pytest.raises(LoggedError, match="undefined: nothing") as caught:
        build(product, lambda _: None)
    assert "undefined: nothing" in caught.value.log.read_text()
    assert {path.name for path in programs_folder().iterdir()} == {"build.lock", caught.value.log.name}


def test_what_an_interrupted_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = programs_folder() / ".building-before"
    left.mkdir(parents=True)
    build(module(tmp_path / "source", HELLO), lambda _: None)
    assert not left.exists()


def test_a_missing_go_is_an_error_that_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product = module(tmp_path / "source", HELLO)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevClusterError, match=r"Go 1\.26 or newer is needed .*go\.dev"):
        build(product, lambda _: None)


def test_an_old_go_is_an_error_that_names_both_versions(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module example.com/hello\n\ngo 9.99\n")
    with pytest.raises(DevClusterError, match=r"Go 9\.99 or newer .*`go` is go1"):
        check_go(tmp_path / "go.mod")


def test_without_a_checkout_the_error_says_so(tmp_path: Path) -> None:
    product = Product(title="hello", module=tmp_path, packages=(".",), programs=("hello",), first_build="no time")
    with pytest.raises(DevClusterError, match=r"built from a checkout"):
        build(product, lambda _: None)


def test_the_version_does_not_depend_on_where_the_checkout_is(tmp_path: Path) -> None:
    versions = {module(tmp_path / name, HELLO).version() for name in ("here", "there")}
    assert len(versions) == 1
