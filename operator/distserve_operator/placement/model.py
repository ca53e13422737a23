"""What the search has to know of a model: the numbers of its transformer."""

from dataclasses import dataclass
from typing import Final, Literal

WeightType = Literal["FP32", "FP16", "BF16", "INT8"]
BYTES: Final[dict[WeightType, int]] = {"FP32": 4, "FP16": 2, "BF16": 2, "INT8": 1}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer. Sizes are counts of elements, `kv_heads` < `heads` is grouped-query attention."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated_ffn: bool  # gate, up and down instead of two matrices
    vocabulary: int
    positions: int  # most tokens of a request
    learned_positions: bool
    tied_embeddings: bool
    weight_type: WeightType = "FP16"
    kv_bytes: int = 2  # of one element of K or V

    @property
    def layer_parameters(self) -> int:
        """Weights of the matrices of one layer."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + (3 if self.gated_ffn else 2) * self.hidden * self.ffn

    @property
    def parameters(self) -> int:
        """Weights of the whole model, embeddings included, norms and biases not."""
        tables = self.vocabulary * (1 if self.tied_embeddings else 2) + (
            self.positions if self.learned_positions else 0
        )
        return self.layers * self.layer_parameters + tables * self.hidden

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.kv_bytes
