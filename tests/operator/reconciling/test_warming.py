"""Compiled code out of a folder that was filled beforehand."""

from pathlib import Path

import pytest

from distserve_operator.placement.simulation.compiling import cache_folder
from distserve_operator.reconciling.warming import ENV_COMPILED, take_compiled


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of this process, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    monkeypatch.setenv(ENV_COMPILED, str(tmp_path / "image"))
    return cache_folder()


def fill(folder: Path, text: str) -> None:
    (folder / "simulation_1").mkdir(parents=True)
    (folder / "simulation_1" / "run.nbc").write_text(text)


def test_an_empty_cache_is_filled_with_the_code_of_this_simulator(own: Path, tmp_path: Path) -> None:
    fill(tmp_path / "image" / own.name, "compiled")
    fill(tmp_path / "image" / "another", "of another version")
    take_compiled()
    assert (own / "simulation_1" / "run.nbc").read_text() == "compiled"
    assert [each.name for each in own.parent.iterdir()] == [own.name]


def test_what_a_process_died_over_is_copied_again(own: Path, tmp_path: Path) -> None:
    fill(tmp_path / "image" / own.name, "compiled")
    fill(own.with_suffix(".unfinished"), "comp")
    take_compiled()
    assert (own / "simulation_1" / "run.nbc").read_text() == "compiled"


def test_a_cache_that_is_in_use_stays_as_it_is(own: Path, tmp_path: Path) -> None:
    fill(tmp_path / "image" / own.name, "compiled")
    fill(own, "compiled here")
    take_compiled()
    assert (own / "simulation_1" / "run.nbc").read_text() == "compiled here"


def test_without_anything_beforehand_it_is_compiled_here(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_compiled()
    monkeypatch.delenv(ENV_COMPILED)
    take_compiled()
    assert not own.exists()
