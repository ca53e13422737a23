"""Which image names the local cluster knows, and what each of them starts."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distserve_devcluster.locations import CHECKOUT, cache_folder

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """The host's root, read-only, and a program; `paths` are folders it needs even below /tmp, which is private."""

    entrypoint: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"
    paths: tuple[Path, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The form in which the node reads it."""
        return {
            "entrypoint": list(self.entrypoint),
            "env": dict(self.env),
            "workingDir": self.working_dir,
            "paths": [str(path) for path in self.paths],
        }


def python_image(*arguments: str) -> Image:
    """This interpreter with its packages, started with `arguments`."""
    folder = Path(sys.executable).parent
    return Image(
        entrypoint=(sys.executable, *arguments),
        env={
            "PATH": f"{folder}:{SYSTEM_PATH}",
            "HOME": "/tmp",  # noqa: S108 - the container's own /tmp
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        paths=tuple(dict.fromkeys((CHECKOUT, Path(sys.prefix), Path(sys.base_prefix)))),
    )


def default_images() -> dict[str, Image]:
    """The product's images under their released names, each run from the environment that this process runs in."""
    tag = version("distserve")
    return {
        f"distserve/operator:{tag}": _with_compiled(python_image("-m", "distserve_operator")),
        f"distserve/gateway:{tag}": python_image("-m", "distserve_worker.gateway"),
        f"distserve/worker:{tag}": python_image("-m", "distserve_worker.server"),
    }


def _with_compiled(image: Image) -> Image:
    """The operator's, with what this machine has compiled of its simulator."""
    folder = cache_folder() / "simulation"
    env = {**image.env, "DISTSERVE_COMPILED": str(folder)}
    return replace(image, env=env, paths=(*image.paths, folder) if folder.is_dir() else image.paths)
