"""What the sources of a model's numbers have in common: defaults."""

from distserve_operator.placement.model import ModelShape, WeightType


def build_shape(
    name: str,
    weight_type: WeightType,
    *,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocabulary: int,
    positions: int,
    gated_ffn: bool,
    learned_positions: bool,
    tied_embeddings: bool,
    kv_heads: int | None = None,
    head_dim: int | None = None,
) -> ModelShape:
    """A model; without `kv_heads` each head has its own. With INT8 weights KV has 16 bits."""
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=head_dim or hidden // heads,
        ffn=ffn,
        gated_ffn=gated_ffn,
        vocabulary=vocabulary,
        positions=positions,
        learned_positions=learned_positions,
        tied_embeddings=tied_embeddings,
        weight_type=weight_type,
        kv_bytes=4 if weight_type == "FP32" else 2,
    )
