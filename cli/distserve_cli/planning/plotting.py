"""Draws the two figures of the paper: attainment against the rate, and against the scale of the targets."""

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from distserve_cli.planning.errors import BadInput

SUFFIXES = (".png", ".pdf", ".svg")


@dataclass(frozen=True, slots=True)
class Curve:
    """Percent of requests that meet the targets, over `label`."""

    label: str
    places: Sequence[float]
    attainment: Sequence[float]


def check_target(path: pathlib.Path) -> None:
    """Raise BadInput when no figure can be written there, before anything is simulated."""
    if path.suffix not in SUFFIXES:
        raise BadInput(f"--plot {path}: give a file that ends in {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise BadInput(f"--plot {path}: there is no folder {path.parent}")


def draw(path: pathlib.Path, title: str, target: float, curves: Sequence[Curve]) -> None:
    """Write the curves side by side, each with a line at `target` percent. Raises BadInput."""
    figure = Figure(figsize=(4.5 * len(curves), 3.5), layout="constrained")
    figure.suptitle(title)
    for place, curve in enumerate(curves, start=1):
        axes = figure.add_subplot(1, len(curves), place)
        axes.plot(curve.places, curve.attainment, marker="o", markersize=3)
        axes.axhline(target, linestyle="--", linewidth=1, color="grey")
        axes.set_xlabel(curve.label)
        axes.set_ylabel("SLO attainment (%)")
        axes.set_ylim(0, 102)
    try:
        figure.savefig(path)
    except OSError as error:
        raise BadInput(f"--plot {path}: {error.strerror}") from error
