"""Which part of a model each rank of an instance holds: pure arithmetic over layers and heads.

Ranks are counted from the last stage: rank 0 is tensor rank 0 of the stage where logits come out. It takes requests.
"""

from dataclasses import dataclass

from distserve_worker.weights.config import ModelConfig


class ParallelismInvalid(ValueError):  # noqa: N818 - named as what a user sees
    """A model that cannot be cut so; the text gives the numbers and what would do."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Shape of an instance: `pp` stages of `tp` ranks each."""

    tp: int = 1
    pp: int = 1

    @property
    def ranks(self) -> int:
        """Processes of the instance."""
        return self.tp * self.pp


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank's part of a model; with more ranks than KV heads, each head is held by several ranks."""

    grid: Grid
    stage: int
    tensor_rank: int
    layers: range
    heads: range  # query heads
    kv_heads: range

    @property
    def is_first(self) -> bool:
        """Whether tokens enter here."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether logits come out here."""
        return self.stage == self.grid.pp - 1

    def part(self, size: int) -> range:
        """This rank's share of `size` equal things that the ranks of a stage divide; the last share may be shorter."""
        share = -(-size // self.grid.tp)
        return range(min(size, self.tensor_rank * share), min(size, (self.tensor_rank + 1) * share))


WHOLE = Grid()


def shard_of(config: ModelConfig, grid: Grid, rank: int) -> Shard:
    """The part of `rank`. Raises `ParallelismInvalid`."""
    _check(config, grid)
    behind, tensor_rank = divmod(rank, grid.tp)
    stage = grid.pp - 1 - behind
    heads = config.heads // grid.tp
    return Shard(
        grid,
        stage,
        tensor_rank,
        _stage_layers(config.layers, grid.pp, stage),
        range(tensor_rank * heads, (tensor_rank + 1) * heads),
        _kv_heads(config, grid, tensor_rank),
    )


def _stage_layers(layers: int, stages: int, stage: int) -> range:
    """Stages differ by one layer at most; the earlier ones have more, since the last one has the head besides."""
    each, more = divmod(layers, stages)
    first = stage * each + min(stage, more)
    return range(first, first + each + (stage < more))


def _kv_heads(config: ModelConfig, grid: Grid, tensor_rank: int) -> range:
    """Those that this rank's query heads look at."""
    if config.kv_heads >= grid.tp:
        each = config.kv_heads // grid.tp
        return range(tensor_rank * each, (tensor_rank + 1) * each)
    head = tensor_rank * config.kv_heads // grid.tp
    return range(head, head + 1)


def _check(config: ModelConfig, grid: Grid) -> None:
    if grid.tp < 1 or grid.pp < 1:
        raise ParallelismInvalid(f"tp is {grid.tp} and pp is {grid.pp}, both must be at least 1")
    if grid.pp > config.layers:
        raise ParallelismInvalid(f"pp is {grid.pp}, the model has only {config.layers} layers")
    if not _divides(config, grid.tp):
        fitting = ", ".join(str(tp) for tp in range(1, config.heads + 1) if _divides(config, tp))
        raise ParallelismInvalid(
            f"tp is {grid.tp}, which does not divide the model's {config.heads} heads, {config.kv_heads} KV heads and "
            f"{config.ffn} FFN columns evenly; tp can be {fitting}"
        )


def _divides(config: ModelConfig, tp: int) -> bool:
    shared = config.kv_heads % tp == 0 or tp % config.kv_heads == 0
    return config.heads % tp == 0 and shared and config.ffn % tp == 0
