"""However the command or its measuring process ends, the other one ends too, and the reason is told."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from distserve_testing.clusters import survivors, until

WAIT_SECONDS = 60.0


class Profiling:
    """A run of the command that would take for ever, once its measuring process is there."""

    def __init__(self, model: Path) -> None:
        command = [sys.executable, "-m", "distserve_cli", "profile", "--model", str(model), "--seconds", "9000"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: bool(self._children()), "the measuring process is there")
        (self.child,) = self._children()

    def _children(self) -> list[psutil.Process]:
        assert self.process.poll() is None, self.process.communicate()
        return [
            child
            for child in psutil.Process(self.process.pid).children()
            if "distserve_worker.measuring" in child.cmdline()
        ]

    def end(self) -> tuple[int, str]:
        """Exit status and standard error; the measuring process is gone by then."""
        _, errors = self.process.communicate(timeout=WAIT_SECONDS)
        until(lambda: not survivors([self.child]), "the measuring process is gone")
        return self.process.returncode, errors


@pytest.fixture
def profiling(tiny: Path) -> Profiling:
    return Profiling(tiny)


def test_an_interrupt_ends_both(profiling: Profiling) -> None:
    profiling.process.send_signal(signal.SIGINT)
    status, errors = profiling.end()
    assert status == 1
    assert errors.strip() == "Aborted!"


def test_an_interrupt_from_the_terminal_reaches_both_and_ends_both(profiling: Profiling) -> None:
    for pid in (profiling.child.pid, profiling.process.pid):
        os.kill(pid, signal.SIGINT)
    status, errors = profiling.end()
    assert status == 1
    assert "Traceback" not in errors


def test_a_measuring_process_that_is_killed_is_named_with_how(profiling: Profiling) -> None:
    profiling.child.kill()
    status, errors = profiling.end()
    assert status == 1
    assert "Error: the measuring process was ended by SIGKILL, as when memory runs out" in errors


def test_the_measuring_process_does_not_outlive_the_command(profiling: Profiling) -> None:
    profiling.process.kill()
    assert profiling.end()[0] == -signal.SIGKILL
