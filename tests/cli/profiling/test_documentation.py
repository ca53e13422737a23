"""docs/profiling.md names every option that there is, and no other; the command itself needs no torch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from distserve_cli.profiling.commands import profile_command
from distserve_cli.profiling.tables import COLUMNS, MIXED_COLUMNS

PAGE = (Path(__file__).parents[3] / "docs/profiling.md").read_text()
OPTIONS = {name for parameter in profile_command.params for name in parameter.opts}


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_every_option_is_documented(option: str) -> None:
    assert re.search(rf"^\|.*`{option}( [A-Z]+)?`", PAGE, re.MULTILINE)


def test_every_documented_option_exists() -> None:
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) - {"--allow-poor-fit", "--profile"} <= OPTIONS


def test_its_sample_is_laid_out_like_the_table() -> None:
    plain, mixed = (
        re.findall(r"^ +\d.*$", part, re.MULTILINE) for part in PAGE.split("Written to")[0].split(" MIXED  REQUESTS")
    )
    assert len(plain) >= 8
    assert {len(row.split()) for row in plain} == {len(COLUMNS)}
    assert len(mixed) >= 2
    assert {len(row.split()) for row in mixed} == {len(MIXED_COLUMNS)}


@pytest.mark.parametrize("module", ["distserve_cli.__main__", "distserve_cli.profiling.running"])
def test_no_torch_is_imported(module: str) -> None:
    program = f"import sys, {module}; print([name for name in ('torch', 'grpc') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_does_not_wait_for_numpy() -> None:
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom distserve_cli.__main__ import main\n"
        "assert CliRunner().invoke(main, ['profile', '--help']).exit_code == 0\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
