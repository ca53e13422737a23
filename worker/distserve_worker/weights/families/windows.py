"""Which layers look at a sliding window only."""

from typing import Final

from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.fields import Fields

_SLIDING: Final = "sliding_attention"
_FULL: Final = "full_attention"
_WINDOW: Final = 4096  # where the field is not written at all; null means none
_FIRST_LAYER: Final = 28


def read_windows(fields: Fields) -> tuple[int | None, ...]:
    """The window of each layer in tokens; None: it sees all. Without layer_types every layer has the same."""
    return _by_kind(fields, _window(fields), 0, "sliding_window is null")


def read_qwen_windows(fields: Fields) -> tuple[int | None, ...]:
    """The same of a Qwen, which has a switch, and says from which layer on without layer_types."""
    if not fields.flag("use_sliding_window", False):
        return _by_kind(fields, None, 0, "use_sliding_window is false")
    first = fields.count("max_window_layers", "layers", _FIRST_LAYER, least=0)
    return _by_kind(fields, _window(fields), first, "sliding_window is null")


def _window(fields: Fields) -> int | None:
    if fields.is_null("sliding_window"):
        return None
    return fields.count("sliding_window", "max_positions", _WINDOW)


def _by_kind(fields: Fields, window: int | None, first: int, why_none: str) -> tuple[int | None, ...]:
    layers = fields.count("num_hidden_layers", "layers")
    kinds = fields.texts("layer_types")
    if kinds is None:
        return tuple(window if layer >= first else None for layer in range(layers))
    if set(kinds) - {_SLIDING, _FULL} or len(kinds) != layers:
        raise ModelInvalid(
            f"{fields.where}: layer_types must be {_FULL} or {_SLIDING} for each of {layers} layers, they are "
            f"{kinds!r:.200}"
        )
    if window is None and _SLIDING in kinds:
        raise ModelInvalid(f"{fields.where}: layer_types has {_SLIDING}, but {why_none}: state a window, or none")
    return tuple(window if kind == _SLIDING else None for kind in kinds)
