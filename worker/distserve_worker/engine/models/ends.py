"""Both ends of a model, which only its first and its last stage have."""

from typing import Final

from distserve_worker.engine.models.interface import Place, Weights
from distserve_worker.engine.models.vocabulary import Head, Vocabulary, head_of, take_head, take_vocabulary
from distserve_worker.weights.config import ModelConfig

HEAD: Final = "lm_head"


def take_ends(
    config: ModelConfig, weights: Weights, place: Place, embeddings: str, width: int
) -> tuple[Vocabulary | None, Head | None]:
    """What embeds tokens on the first stage and what scores them on the last; a tied head has the same table."""
    shard = place.shard
    entrance = take_vocabulary(weights, place, embeddings, config.vocab, width) if shard.is_first else None
    if not shard.is_last:
        return entrance, None
    if config.tied_embeddings and entrance is not None:
        return entrance, head_of(entrance, place)
    name = embeddings if config.tied_embeddings else HEAD
    return entrance, take_head(weights, place, name, config.vocab, width)
