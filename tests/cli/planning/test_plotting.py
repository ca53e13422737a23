"""The paper's two figures are written, and a place where they cannot be is refused before any work."""

from pathlib import Path

import pytest

from distserve_cli.planning.errors import BadInput
from distserve_cli.planning.plotting import Curve, check_target, draw

CURVES = [Curve("requests per second", [1, 2, 3], [100, 96, 20]), Curve("scale", [0.5, 1, 2], [10, 90, 99])]


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_figures_are_files_of_their_kind(tmp_path: Path, suffix: str, start: bytes) -> None:
    file = tmp_path / f"figure{suffix}"
    check_target(file)
    draw(file, "OPT-13B", 90, CURVES)
    assert file.read_bytes().startswith(start)


def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--plot .*figure.doc: give a file that ends in .png"):
        check_target(tmp_path / "figure.doc")
    with pytest.raises(BadInput, match=r"there is no folder .*none"):
        check_target(tmp_path / "none" / "figure.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(BadInput, match=r"Is a directory"):
        draw(tmp_path / "folder.png", "OPT-13B", 90, CURVES)
