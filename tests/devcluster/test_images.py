"""Image names stand for programs of this environment."""

import sys
from pathlib import Path

from distserve_devcluster.images import default_images


def test_the_products_images_start_its_modules_with_this_interpreter() -> None:
    images = default_images()
    assert {name: image.entrypoint for name, image in images.items()} == {
        "distserve/operator:0.1.0": (sys.executable, "-m", "distserve_operator"),
        "distserve/gateway:0.1.0": (sys.executable, "-m", "distserve_worker.gateway"),
        "distserve/worker:0.1.0": (sys.executable, "-m", "distserve_worker.server"),
    }


def test_the_environment_finds_the_interpreter_first_and_writes_no_bytecode() -> None:
    image = default_images()["distserve/worker:0.1.0"].to_json()
    assert image["env"]["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    assert image["env"]["PYTHONDONTWRITEBYTECODE"] == image["env"]["PYTHONUNBUFFERED"] == "1"
    assert image["workingDir"] == "/"


def test_the_environment_and_the_checkout_stay_visible_even_below_tmp() -> None:
    paths = default_images()["distserve/worker:0.1.0"].paths
    assert Path(sys.prefix) in paths
    assert Path(__file__).resolve().parents[2] in paths
