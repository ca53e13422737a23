"""Addresses are written and read by one function (B16)."""

import pytest

from distserve_proto.addresses import Address, format_address, parse_address


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("10.1.2.3", 9000, "10.1.2.3:9000"),
        ("fd00::1", 9000, "[fd00::1]:9000"),
        ("[fd00::1]", 9000, "[fd00::1]:9000"),
        ("FD00:0:0::1", 9000, "[fd00::1]:9000"),
        ("fe80::1%eth0", 1, "[fe80::1%eth0]:1"),
        ("prefill-0.workers.default.svc.cluster.local", 65535, "prefill-0.workers.default.svc.cluster.local:65535"),
        ("localhost", 0, "localhost:0"),
    ],
)
def test_every_kind_of_host_survives_the_round_trip(host: str, port: int, text: str) -> None:
    """B16."""
    assert format_address(host, port) == text
    assert str(parse_address(text)) == text


def test_a_parsed_ipv6_host_has_no_brackets() -> None:
    """B16: the host is what a socket wants, the text is what a URL wants."""
    assert parse_address("[::1]:80") == Address("::1", 80)


@pytest.mark.parametrize(
    "text",
    ["", "10.1.2.3", "10.1.2.3:", "10.1.2.3:x", "10.1.2.3:65536", "10.1.2.3:-1", "::1:9000", "[10.1.2.3]:1", "[host]:1",
     "a b:1", "-a:1", "a..b:1", "1.2.3.4.5:6", "999.1.1.1:2", ":80", "[]:80", "[::1]9000", "host:٣"],
)  # fmt: skip
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    """B16."""
    with pytest.raises(ValueError, match=r"address|host"):
        parse_address(text)


def test_a_port_out_of_range_is_never_written() -> None:
    with pytest.raises(ValueError, match="port 70000"):
        format_address("::1", 70000)
