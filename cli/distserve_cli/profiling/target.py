"""Where a profile goes: a file of its own, or a manifest of a ConfigMap."""

import os
import pathlib
import re
from dataclasses import dataclass
from typing import Final

from distserve_cli.planning.errors import BadInput

_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Target:
    """A manifest is named; without a file it goes to standard output. Neither: the profile is shown, not kept."""

    file: pathlib.Path | None
    config_map: str | None
    namespace: str | None

    @property
    def takes_standard_output(self) -> bool:
        """Whether a manifest is printed, so that nothing else may be."""
        return self.config_map is not None and self.file is None


def checked(target: Target) -> Target:
    """The same. Raises BadInput when it cannot be written, before anything is measured."""
    if target.config_map is not None and not _NAME.fullmatch(target.config_map):
        raise BadInput(
            f"--config-map {target.config_map}: is no name of an object: give lower-case letters, digits, - and ."
        )
    if target.namespace is not None and target.config_map is None:
        raise BadInput(f"--namespace {target.namespace}: is for a ConfigMap only: give --config-map NAME, too")
    if target.namespace is not None and not _LABEL.fullmatch(target.namespace):
        raise BadInput(f"--namespace {target.namespace}: is no name of a namespace: give lower-case letters and digits")
    if target.file is not None:
        _check_file(target.file)
    return target


def _check_file(file: pathlib.Path) -> None:
    if not file.parent.is_dir():
        raise BadInput(f"--output {file}: there is no folder {file.parent}: make it, or give a file elsewhere")
    if file.is_dir():
        raise BadInput(f"--output {file}: is a folder: give a file in it")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise BadInput(f"--output {file}: may not be written: give a file elsewhere")
