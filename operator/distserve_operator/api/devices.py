"""Devices a fleet can be made of: how their nodes are labelled and how much memory they have."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

GIB: Final = 1024**3


class DeviceType(StrEnum):
    """Values of `spec.cluster.deviceType`."""

    CPU = "CPU"
    A100_80GB = "A100-80GB"
    H100_80GB = "H100-80GB"
    H200 = "H200"
    L40S = "L40S"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as NVIDIA's feature discovery labels its node (`nvidia.com/gpu.product`: its name, blanks as dashes).

    `memory_bytes` is what CUDA reports as usable, rounded down to GiB.
    """

    products: tuple[str, ...]
    memory_bytes: int


GPUS: Final = {
    DeviceType.A100_80GB: Gpu(("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"), 79 * GIB),
    DeviceType.H100_80GB: Gpu(("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"), 79 * GIB),
    DeviceType.H200: Gpu(("NVIDIA-H200",), 139 * GIB),
    DeviceType.L40S: Gpu(("NVIDIA-L40S",), 44 * GIB),
}
