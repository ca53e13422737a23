"""Network addresses: the one place that writes and reads `host:port`, for IPv4, IPv6 and DNS hosts alike."""

import ipaddress
import re
from dataclasses import dataclass

_DNS_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_MAX_DNS_NAME = 253
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """A host without brackets and a port; `str` is the form that goes over the wire."""

    host: str
    port: int

    def __str__(self) -> str:
        return format_address(self.host, self.port)


def format_address(host: str, port: int) -> str:
    """`host:port` for gRPC targets, URLs and logs; an IPv6 host gets its brackets, given with or without them.

    Raises ValueError for a host or a port that cannot be one.
    """
    if not 0 <= port <= _MAX_PORT:
        raise ValueError(f"port {port}: expected 0 to {_MAX_PORT}")
    bare = _checked_host(host.removeprefix("[").removesuffix("]"))
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def parse_address(text: str) -> Address:
    """Read what `format_address` wrote. Raises ValueError that names what is wrong."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > _MAX_PORT:
        raise ValueError(f"address {text!r}: expected host:port with a port of 0 to {_MAX_PORT}")
    bracketed = host.startswith("[") and host.endswith("]")
    if (":" in host) != bracketed:
        raise ValueError(f"address {text!r}: an IPv6 host, and only that, stands in brackets")
    return Address(_checked_host(host[1:-1] if bracketed else host), int(port))


def _checked_host(host: str) -> str:
    """The host in its canonical form."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        labels = host.removesuffix(".").split(".")
        too_long = len(host) > _MAX_DNS_NAME
        if too_long or labels[-1].isdigit() or not all(_DNS_LABEL.fullmatch(label) for label in labels):
            raise ValueError(f"host {host!r}: neither an IP address nor a DNS name") from None
        return host
