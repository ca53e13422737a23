"""Devices a fleet can be made of, and how their nodes are labelled."""

from enum import StrEnum
from typing import Final


class DeviceType(StrEnum):
    """Values of `spec.cluster.deviceType`."""

    CPU = "CPU"
    A100_80GB = "A100-80GB"
    H100_80GB = "H100-80GB"
    H200 = "H200"
    L40S = "L40S"


# As NVIDIA's feature discovery labels their nodes (`nvidia.com/gpu.product`: its name, blanks as dashes).
GPU_PRODUCTS: Final = {
    DeviceType.A100_80GB: ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"),
    DeviceType.H100_80GB: ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"),
    DeviceType.H200: ("NVIDIA-H200",),
    DeviceType.L40S: ("NVIDIA-L40S",),
}
