"""Asking a supervisor that is not there, or that ends while it answers."""

import socket
import threading
from pathlib import Path

import pytest

from distserve_devcluster.controlling import ask
from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.locations import StateFolder


def test_where_no_supervisor_listens_there_is_no_answer(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    assert ask(state, "status") is None
    state.sockets.write_text("somebody's file")
    assert ask(state, "status") is None
    state.sockets.unlink()
    state.sockets.mkdir()
    assert ask(state, "status") is None


@pytest.mark.parametrize(
    ("sent", "error"),
    [(b'{"phase": "rea', "broke off its answer"), (b'{"error": "no component x"}\n', "no component x")],
)
def test_an_answer_that_is_none_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes, error: str
) -> None:
    state = StateFolder(tmp_path)
    state.sockets.mkdir()
    # The kernel allows about 100 bytes for a socket's path.
    monkeypatch.chdir(state.sockets)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("control.sock")
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as asked:
                asked.readline()
                connection.sendall(sent)

        supervisor = threading.Thread(target=answer)
        supervisor.start()
        with pytest.raises(DevClusterError, match=error):
            ask(state, "status")
        supervisor.join()
