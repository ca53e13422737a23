"""A cluster has a folder of its own, and neither a name nor a link makes it touch any other."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from distserve_cli.__main__ import main
from distserve_devcluster.claiming import claim, clear, is_claimed
from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.locations import StateFolder, default_state_folder
from distserve_devcluster.running import down

WRONG_NAMES = ["", ".", "..", "../x", "a/b", "/etc", "A", "-a", "a-", "a b", "a.b", "a\n", "ä", "~", "a" * 41]


def tree(folder: Path) -> dict[str, str | None]:
    """Every path below, with the text of files."""
    return {str(path): path.read_text() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def precious(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of somebody, with names that a cluster uses too, beside the folder of clusters."""
    monkeypatch.setenv("DISTSERVE_STATE", str(tmp_path / "state"))
    folder = tmp_path / "precious"
    (folder / "etcd").mkdir(parents=True)
    (folder / "etcd" / "data").write_text("years of work")
    (folder / "kubeconfig").write_text("mine")
    (folder / "logs").mkdir()
    (folder / "logs" / "a.log").write_text("mine")
    return folder


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_a_name_that_is_a_path_is_refused_with_what_is_allowed(name: str, precious: Path) -> None:
    before = tree(precious)
    commands = [["down"], ["up"], ["status"], ["publish", "a/b"], ["component", "stop", "etcd"], ["kill", "a/b"]]
    for command in [*commands, ["demo"]]:
        done = CliRunner().invoke(main, ["dev", *command, "--name", name])
        assert done.exit_code == 1
        assert f"cluster name {name!r} (--name or DISTSERVE_DEV_NAME)" in done.output
        assert "write at most 40 of a-z, 0-9 and -" in done.output
    done = CliRunner().invoke(main, ["dev", "kubectl", "get", "pods"], env={"DISTSERVE_DEV_NAME": name or "../x"})
    assert "DISTSERVE_DEV_NAME" in done.output
    assert tree(precious) == before


@pytest.mark.parametrize("name", ["a", "0", "demo", "e2e-17", "a" * 40])
def test_other_names_lead_into_the_folder_of_clusters(name: str, precious: Path) -> None:
    assert default_state_folder(name) == precious.parent / "state" / name


def test_down_leaves_a_folder_alone_that_no_cluster_has_claimed(
    precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTSERVE_STATE", str(precious.parent))
    before = tree(precious)
    done = CliRunner().invoke(main, ["dev", "down", "--name", "precious"])
    assert "no cluster 'precious' was running" in done.output
    assert tree(precious) == before


def test_a_folder_with_other_things_in_it_is_not_taken(precious: Path) -> None:
    before = tree(precious)
    with pytest.raises(DevClusterError, match=r"precious holds \w+, which is no cluster's: choose another --name"):
        claim(StateFolder(precious))
    assert tree(precious) == before


def test_nothing_behind_a_link_is_touched(precious: Path, tmp_path: Path) -> None:
    before = tree(precious)
    link = StateFolder(tmp_path / "link")
    link.path.symlink_to(precious)
    for attempt in (claim, down):
        with pytest.raises(DevClusterError, match="is a symbolic link"):
            attempt(link)
    own = StateFolder(tmp_path / "own")
    own.path.mkdir()
    own.change_lock.symlink_to(precious / "made-through-the-link")
    with pytest.raises(DevClusterError, match="holds change"):
        claim(own)
    assert not down(own)
    own.change_lock.unlink()
    own.logs.symlink_to(precious / "logs")
    own.change_lock.touch()
    with pytest.raises(DevClusterError, match="logs is a symbolic link"):
        claim(own)
    for name in ("etcd", "kubeconfig", "node-0"):
        (own.path / name).symlink_to(precious / name)
    down(own)
    assert {path.name for path in own.path.iterdir()} == {"logs", "change.lock"}
    assert tree(precious) == before


def test_only_what_clusters_make_is_cleared(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "own")
    claim(state)
    claim(state)
    assert is_claimed(state)
    made = ["images.json", "programs.json", "images.17", "spec.json", "spec.json.4711", "kubeconfig", "kubeconfig.2"]
    foreign = ["notes.json", "node-backup", "node-0.tar", "kubeconfig.bak", "etcd.old", "images.txt", "runs"]
    for name in [*made, *foreign]:
        (state.path / name).write_text("x")
    for name in ("pki", "etcd", "run", "node-0", "node-11"):
        (state.path / name / "deep").mkdir(parents=True)
    clear(state)
    assert {path.name for path in state.path.iterdir()} == {*foreign, "logs", "change.lock"}
