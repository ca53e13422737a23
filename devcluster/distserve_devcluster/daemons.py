"""Starts a program that outlives this one, and tells processes with the same id apart."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program in a session of its own. `subprocess` would warn about one that still runs when it is forgotten."""

    pid: int

    def has_ended(self) -> bool:
        """Whether it is over; it is then reaped."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:
            return True

    def reap(self, timeout_seconds: float) -> None:
        """Leave no zombie of a program that is about to end, unless another process started it."""
        deadline = time.monotonic() + timeout_seconds
        while not self.has_ended() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def end(self, grace_seconds: float) -> None:
        """Ask it to end, kill it after the grace period, and return when it is gone."""
        number = signal.SIGTERM
        deadline = time.monotonic() + grace_seconds
        while not self.has_ended():
            os.kill(self.pid, number)
            if time.monotonic() > deadline:
                number = signal.SIGKILL
            time.sleep(POLL_SECONDS)


def spawn(program: Path, arguments: list[str], log: Path, *, ends_with_us: bool = False) -> Daemon:
    """Start `program` with both outputs in `log`.

    With `ends_with_us` its standard input is a pipe that ends when this process does, however that happens.
    """
    output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    # The pipe's other end is left open for as long as this process lives.
    source = os.pipe()[0] if ends_with_us else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            program,
            [program.name, *arguments],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, each, target) for target, each in enumerate((source, output, output))],
            setsid=True,
        )
    finally:
        os.close(output)
        os.close(source)
    return Daemon(pid)


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name is in parentheses and may hold anything; the start time is the 20th field after it.
    return int(text.rpartition(")")[2].split()[19])
