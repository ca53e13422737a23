"""The README says only what is there."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from distserve_testing.readme import pushed_images

from distserve_cli.__main__ import main
from distserve_devcluster.images import default_images

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_make_target_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z-]+)", README))
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_and_folder_of_a_page_exists(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_every_folder_it_names_exists() -> None:
    for folder in re.findall(r"`([a-z_/]+/)`", README):
        assert (ROOT / folder).is_dir(), folder


def test_every_command_line_it_names_is_understood() -> None:
    commands = re.findall(r"`\.venv/bin/distserve ([^`]+)`", README)
    assert commands
    for command in commands:
        words = [word for word in shlex.split(command) if not word.startswith("-")]
        group = words[: 2 if words[0] == "dev" else 1]
        done = CliRunner().invoke(main, [*group[:-1], "--help"])
        assert done.exit_code == 0
        assert group[-1] in done.output


def test_its_resource_is_the_sample() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert yaml.safe_load(shown) == yaml.safe_load((ROOT / "docs/samples/smollm2-hub.yaml").read_text())


def test_every_image_that_it_builds_is_a_target_and_is_pushed() -> None:
    targets = re.findall(r"^FROM source AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    (loop,) = re.findall(r"^for target in (.*); do$", README, re.MULTILINE)
    assert sorted(loop.split()) == sorted(targets)
    images = pushed_images(default_images())
    assert images == {f"registry.example.com/team/{name}": image for name, image in default_images().items()}
