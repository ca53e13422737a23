"""Opening a listening socket for any kind of host."""

import socket

_BACKLOG = 128


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. `::` also takes IPv4; port 0 takes a free one. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    both = family == socket.AF_INET6 and address[0] == "::"
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=both)
