"""Devices by name."""

import pytest

from distserve_operator.placement.catalogue.devices import device, device_names
from distserve_operator.placement.catalogue.errors import UnknownDeviceError
from distserve_operator.placement.model import BYTES


def test_the_testbed_of_the_paper_is_as_the_paper_says() -> None:
    a100 = device("a100-80gb")
    assert a100.name == "A100-80GB"
    assert a100.memory == 84.9906e9
    assert a100.network_link == pytest.approx(25e9 / 8)
    assert a100.flops["FP16"] == 312e12
    assert a100.bandwidth == 2039e9


def test_an_a100_is_compute_bound_above_the_papers_intensity() -> None:
    """156 operations a byte (paper, appendix A)."""
    a100 = device("A100-80GB")
    assert a100.flops["FP16"] / a100.bandwidth == pytest.approx(156, rel=0.03)


def test_every_device_knows_all_weight_types_and_has_no_zeros() -> None:
    for name in device_names():
        one = device(name)
        assert set(one.flops) == set(BYTES)
        assert min(one.memory, one.bandwidth, one.node_link, one.network_link, *one.flops.values()) > 0


def test_an_unknown_device_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownDeviceError, match="device 'A100-40GB' is not known: did you mean A100-80GB") as caught:
        device("A100-40GB")
    assert caught.value.nearest[0] == "A100-80GB"
