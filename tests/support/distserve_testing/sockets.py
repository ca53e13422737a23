"""Reading from sockets that have a timeout."""

import socket


def received(sock: socket.socket, size: int) -> bytes:
    """So many bytes, or those before its end."""
    data = b""
    while len(data) < size and (part := sock.recv(size - len(data))):
        data += part
    return data
