"""Programs of ours as forks of a process that has read torch already: reading it takes longer than most tests."""

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

_READ: Final = ["distserve_worker.server.running", "distserve_worker.engine.building"]
CONTEXT: Final = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(_READ)


@atexit.register
def _end_all() -> None:
    """What a failed test has left running; the interpreter would wait for it."""
    for process in multiprocessing.active_children():
        process.kill()


class Forked:
    """One `python -m MODULE ARGUMENTS`, with the interface of `subprocess.Popen`."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        """Start it; standard error goes to `log`, standard output can be read from `stdout`."""
        self._out, out = CONTEXT.Pipe(duplex=False)
        self._process = CONTEXT.Process(target=_main, args=(module, arguments, log, dict(env), out))
        self._process.start()
        out.close()
        assert self._process.pid is not None
        self.pid: Final = self._process.pid
        self.stdout: Final = open(self._out.fileno(), "rb", closefd=False)  # noqa: SIM115 - closed by whoever kills it

    def poll(self) -> int | None:
        """The exit status, negative when a signal ended it; None: it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """The exit status. Raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Nothing happens when it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


def _main(module: str, arguments: Sequence[str], log: Path, env: Mapping[str, str], out: Connection) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.dup2(out.fileno(), sys.stdout.fileno())
    out.close()
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")
