"""Asks the supervisor of a running cluster, over its unix socket."""

import json
import os
import socket
from typing import Any, Literal

from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.locations import StateFolder

Action = Literal["status", "publish", "start", "stop", "shutdown"]
TIMEOUT_SECONDS = 70


def ask(state: StateFolder, action: Action, **fields: str | int) -> dict[str, Any] | None:
    """The supervisor's answer, or None when no supervisor listens.

    Raises:
        DevClusterError: the supervisor refused, or did not answer in time.
    """
    connection = _connect(state)
    if connection is None:
        return None
    with connection, connection.makefile("rwb") as stream:
        try:
            stream.write(json.dumps({"action": action, **fields}).encode() + b"\n")
            stream.flush()
            line = stream.readline()
        except OSError as error:
            raise DevClusterError(f"the supervisor of {state.path} does not answer: {error}") from error
    if not line:
        # It was ending; a shutdown may close the socket before it answers.
        return None
    try:
        answer: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise DevClusterError(f"the supervisor of {state.path} broke off its answer: {line[:80]!r}") from error
    if answer.get("error"):
        raise DevClusterError(answer["error"])
    return answer


def _connect(state: StateFolder) -> socket.socket | None:
    # The kernel allows about 100 bytes for a socket's path, so the folder is named through its descriptor.
    try:
        folder = os.open(state.sockets, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise DevClusterError(f"the cluster in {state.path} is another user's: {error}") from error
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        connection.connect(f"/proc/self/fd/{folder}/control.sock")
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    finally:
        os.close(folder)
    return connection
