"""docs/planning.md names every option and key that there is, and its commands work as they stand there."""

import json
import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from distserve_cli.__main__ import main
from distserve_cli.planning.answer import Answer
from distserve_cli.planning.commands import plan_command, simulate_command
from distserve_cli.planning.rendering import answer_json
from distserve_operator.placement.answer import Counted, Plan

PAGE = (Path(__file__).parents[3] / "docs/planning.md").read_text()
COMMANDS = re.findall(r"^\$ distserve (.+)$", PAGE, re.MULTILINE)
NOTHING = Plan(False, None, None, None, {}, "", (), None, "", None, None, None, (), Counted(0, 0, 0), "")


def options(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts if name.startswith("--")}


OPTIONS = options(plan_command) | options(simulate_command) | {"-f", "-o"}


@pytest.mark.parametrize("option", sorted(OPTIONS - {"--filename", "--output"}))
def test_every_option_is_documented(option: str) -> None:
    assert re.search(rf"`{option}( FILE)?`", PAGE)


def test_every_documented_option_exists() -> None:
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= OPTIONS


@pytest.mark.parametrize("key", answer_json(Answer(NOTHING, 0, 0), 0))
def test_every_key_is_documented(key: str) -> None:
    assert re.search(rf"^\|.*`{key}`.* \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_work(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (resource,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    Path("deployment.yaml").write_text(resource)
    Path("trace.csv").write_text("arrival_seconds,prompt_tokens,output_tokens\n0,55,4\n0.5,829,17\n0.5,697,43\n")
    done = CliRunner().invoke(main, shlex.split(command))
    assert done.exit_code == 0, done.output
    assert done.stdout
    if "-o json" in command:
        json.loads(done.stdout)
    if "--plot" in command:
        assert Path("attainment.png").stat().st_size > 0
