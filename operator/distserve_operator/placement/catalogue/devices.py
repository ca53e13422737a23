"""Devices by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from distserve_operator.placement.catalogue.data import content_of
from distserve_operator.placement.catalogue.errors import UnknownDeviceError
from distserve_operator.placement.device import Device


def device_names() -> tuple[str, ...]:
    """All devices that `device` knows."""
    return tuple(content_of("devices.yaml"))


def device(name: str) -> Device:
    """The device of this name, in any case. Raises `UnknownDeviceError`."""
    for known, fields in content_of("devices.yaml").items():
        if known.lower() == name.lower():
            return _device(known, fields)
    raise UnknownDeviceError("device", name, device_names())


def _device(name: str, fields: Mapping[str, Any]) -> Device:
    return Device(
        name=name,
        memory=float(fields["memoryBytes"]),
        flops=MappingProxyType({kind: 1e12 * figure for kind, figure in fields["teraflops"].items()}),
        bandwidth=1e9 * fields["memoryGigabytesPerSecond"],
        node_link=1e9 * fields["nodeGigabytesPerSecond"],
        network_link=1e9 / 8 * fields["networkGigabitsPerSecond"],
    )
