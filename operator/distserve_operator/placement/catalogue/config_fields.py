"""Fields of a config.json: whole numbers such as a model can have, whose mistakes are named."""

from collections.abc import Mapping
from typing import Any, Final

MOST: Final = 10_000_000
MOST_HEADS: Final = 4096
# how the families with mixtures of experts say how many they have
_EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


class ConfigFields:
    """The fields of one configuration; null counts as absent."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def count(self, name: str, most: int = MOST) -> int:
        """A whole number from 1 to `most`. Raises ValueError, also when it is absent."""
        found = self.optional(name, most)
        if found is None:
            raise ValueError(f"has no field {name}: give the file as its model was published")
        return found

    def optional(self, name: str, most: int = MOST) -> int | None:
        """As `count`; None: the field is absent."""
        value = self._config.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"has {name} {value!r:.60}: expected a whole number from 1 to {most:,}")
        return value

    def heads(self, name: str, hidden: str, head_dim: int | None = None) -> int:
        """Attention heads among which the hidden size is shared out, unless their size is known."""
        heads, size = self.count(name, MOST_HEADS), self.count(hidden)
        if head_dim is None and size % heads:
            raise ValueError(f"has {name} {heads}: expected a divisor of the {hidden} {size}, or a head_dim")
        return heads

    def kv_heads(self, heads: int, usual: int | None) -> int | None:
        """Heads of K and V, each for equally many of the `heads`; None: as many. `usual`: where the field is absent.

        Unlike elsewhere null is not the same as absent: it means as many.
        """
        name = "num_key_value_heads"
        absent = name not in self._config and usual is not None
        found = usual if absent else self.optional(name, heads)
        if found is not None and heads % found:
            stated = f"has no {name}, which means {found}" if absent else f"has {name} {found}"
            raise ValueError(f"{stated}: expected a divisor of the {heads} attention heads")
        return found

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._config.get(name)
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"has {name} {value!r:.60}: expected true or false")
        return default if value is None else value

    def refuse_experts(self) -> None:
        """Mixtures of experts have other weights and other steps than dense models."""
        for name in _EXPERTS:
            if self._config.get(name) not in (None, 0, 1):
                raise ValueError(
                    f"has {name} {self._config[name]!r:.60}: mixtures of experts are not planned, give a dense model"
                )
