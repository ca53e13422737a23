"""Which layers of a Qwen look at a sliding window only."""

from typing import Final

from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.fields import Fields

_SLIDING: Final = "sliding_attention"
_FULL: Final = "full_attention"
_WINDOW: Final = 4096
_FIRST_LAYER: Final = 28


def read_windows(fields: Fields) -> tuple[int | None, ...]:
    """The window of each layer in tokens; None: it sees all."""
    layers = fields.count("num_hidden_layers", "layers")
    if not fields.flag("use_sliding_window", False):
        return (None,) * layers
    first = fields.count("max_window_layers", "layers", _FIRST_LAYER, least=0)
    kinds = fields.texts("layer_types") or (_FULL,) * min(first, layers) + (_SLIDING,) * (layers - first)
    unknown = set(kinds) - {_SLIDING, _FULL}
    if unknown or len(kinds) != layers:
        raise ModelInvalid(
            f"{fields.where}: layer_types must be {_FULL} or {_SLIDING} for each of {layers} layers, they are "
            f"{kinds!r:.200}"
        )
    window = fields.count("sliding_window", "max_positions", _WINDOW)
    return tuple(window if kind == _SLIDING else None for kind in kinds)
