"""Scaled rotary frequencies, all expressed as one divisor for each frequency."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from distserve_worker.weights.errors import ModelInvalid

# far beyond what any model states, and so little that what is computed from them stays a number
_LEAST: Final = 1e-6
_MOST: Final = 1e9
DEFAULT: Final = "default"  # none
_NUMBERS: Final = frozenset(
    {
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
        "beta_fast",
        "beta_slow",
        "attention_factor",
        "mscale",
        "mscale_all_dim",
    }
)


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding: frequency i of head_dim / 2 is theta^(-2i / head_dim) / divisors[i].

    `magnitude` multiplies cosine and sine.
    """

    theta: float
    divisors: tuple[float, ...] | None = None  # None: the frequencies as they are
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class RopeBase:
    """What a scaling starts from; `max_positions` stands in for a trained length that is not stated."""

    theta: float
    head_dim: int
    max_positions: int


def kind_of(scaling: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON can hold anything
    """The kind that a scaling says it is."""
    return scaling.get("rope_type", scaling.get("type", DEFAULT))


def scaled_rope(scaling: Mapping[str, Any], base: RopeBase, where: str) -> Rope:
    """What Hugging Face's `rope_scaling` (or `rope_parameters`) object stands for. Raises `ModelInvalid`."""
    kind = kind_of(scaling)
    nested = [name for name, value in scaling.items() if isinstance(value, Mapping)]
    if nested:
        raise ModelInvalid(f"{where}: rope scaling of its own for {', '.join(nested)} is not known")
    if scaling.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelInvalid(f"{where}: a partial_rotary_factor of {scaling['partial_rotary_factor']} is not known")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ModelInvalid(f"{where}: rope scaling {kind} is not known (known: {', '.join(_KINDS)})")
    _check_numbers(scaling, f"{where}: rope scaling")
    try:
        return _KINDS[kind](scaling, base)
    except KeyError as error:
        raise ModelInvalid(f"{where}: rope scaling {kind} lacks the field {error}") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ModelInvalid(f"{where}: rope scaling {kind} has a value that cannot be used ({error})") from error


def _check_numbers(scaling: Mapping[str, Any], where: str) -> None:
    """Some of them may be 0 or null, which stands for "not stated"."""
    for name, value in scaling.items():
        if name in _NUMBERS and not _usable(value):
            span = f"a number from {_LEAST:g} to {_MOST:g}"
            raise ModelInvalid(f"{where}: the field {name} is {value!r:.80}, it must be {span}")


def _usable(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return value is None or value == 0 or (isinstance(value, int | float) and _LEAST <= value <= _MOST)


def _default(scaling: Mapping[str, Any], base: RopeBase) -> Rope:  # noqa: ARG001 - one signature for all kinds
    return Rope(base.theta)


def _linear(scaling: Mapping[str, Any], base: RopeBase) -> Rope:
    return Rope(base.theta, (_required(scaling, "factor"),) * (base.head_dim // 2))


def _llama3(scaling: Mapping[str, Any], base: RopeBase) -> Rope:
    """Llama 3.1: short wavelengths stay, long ones are divided by `factor`, those between are blended."""
    factor, low, high = (_required(scaling, name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = _trained(scaling, base)

    def divisor(index: int) -> float:
        wavelength = 2 * math.pi * math.pow(base.theta, 2 * index / base.head_dim)
        blend = min(1.0, max(0.0, (trained / wavelength - low) / (high - low)))
        return 1.0 / ((1.0 - blend) / factor + blend)

    return Rope(base.theta, tuple(divisor(index) for index in range(base.head_dim // 2)))


def _yarn(scaling: Mapping[str, Any], base: RopeBase) -> Rope:
    """YaRN (arXiv 2309.00071, sections 3.2 to 3.4), with the optional fields that transformers reads."""
    trained = _trained(scaling, base)
    factor = base.max_positions / trained if scaling["factor"] is None else float(scaling["factor"])
    fast, slow = float(scaling.get("beta_fast") or 32), float(scaling.get("beta_slow") or 1)

    def dimension(rotations: float) -> float:
        """The frequency that turns so often over the trained length, as a place between frequencies."""
        return base.head_dim * math.log(trained / (rotations * 2 * math.pi)) / (2 * math.log(base.theta))

    first, last = dimension(fast), dimension(slow)
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, base.head_dim - 1)
    width = last - first or 0.001  # as transformers has it

    def divisor(index: int) -> float:
        ramp = min(1.0, max(0.0, (index - first) / width))
        return 1.0 / (ramp / factor + 1.0 - ramp)

    return Rope(base.theta, tuple(divisor(index) for index in range(base.head_dim // 2)), _magnitude(scaling, factor))


def _magnitude(scaling: Mapping[str, Any], factor: float) -> float:
    def of(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    stated = scaling.get("attention_factor")
    if stated is not None:
        return float(stated)
    weights = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return of(float(weights[0])) / of(float(weights[1])) if weights[0] and weights[1] else of(1.0)


def _required(scaling: Mapping[str, Any], name: str) -> float:
    if scaling.get(name) is None:
        raise KeyError(name)
    return float(scaling[name])


def _trained(scaling: Mapping[str, Any], base: RopeBase) -> float:
    return float(scaling.get("original_max_position_embeddings") or base.max_positions)


_KINDS: Final[Mapping[str, Callable[[Mapping[str, Any], RopeBase], Rope]]] = {
    DEFAULT: _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
