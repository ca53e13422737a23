"""Scaled rotary frequencies, all expressed as one divisor for each frequency."""

import math
from collections.abc import Mapping
from typing import Any

from distserve_worker.weights.errors import ModelInvalid


def rope_divisors(
    scaling: Mapping[str, Any] | None, theta: float, head_dim: int, where: str
) -> tuple[float, ...] | None:
    """Divisors that Hugging Face's `rope_scaling` (or `rope_parameters`) object stands for; None for no scaling."""
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type", "default"))
    if not scaling or kind == "default":
        return None
    try:
        if kind == "linear":
            return (float(scaling["factor"]),) * (head_dim // 2)
        if kind == "llama3":
            return _llama3(scaling, theta, head_dim)
    except KeyError as error:
        raise ModelInvalid(f"{where}: rope scaling {kind} lacks the field {error}") from error
    raise ModelInvalid(f"{where}: rope scaling {kind} is not known (known: default, linear, llama3)")


def _llama3(scaling: Mapping[str, Any], theta: float, head_dim: int) -> tuple[float, ...]:
    """Llama 3.1: short wavelengths stay, long ones are divided by `factor`, those between are blended."""
    factor, low, high = (float(scaling[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = float(scaling["original_max_position_embeddings"])

    def divisor(index: int) -> float:
        wavelength = 2 * math.pi * math.pow(theta, 2 * index / head_dim)
        blend = min(1.0, max(0.0, (trained / wavelength - low) / (high - low)))
        return 1.0 / ((1.0 - blend) / factor + blend)

    return tuple(divisor(index) for index in range(head_dim // 2))
