"""The one interface between a worker's server and whatever runs the model; torch is the first implementation.

Every method is called from one thread, the engine thread. The only exception is the memory behind the blocks that
`export` and `import_target` name: transports read or write it from their own threads, in the process of each rank, and
the engine guarantees that no step touches it and no other request gets it between `export` and `unpin`, and between
`Reserved` and `imported`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import torch  # whoever only talks about an engine need not wait seconds for it

ITEM_BYTES: Final = {"FP32": 4, "FP16": 2, "BF16": 2}
# Memory of a GPU that transports hold beside the engine's: chunks that its rank reads, or that it sends and as many
# more that readers stage there by themselves; and bytes of each.
MOST_STAGED: Final = 8
CHUNK_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Shape of one KV block: [layers, 2 (K, V), kv_heads, block_tokens, head_dim] of dtype, contiguous."""

    layers: int
    kv_heads: int
    head_dim: int
    block_tokens: int
    dtype: str

    @property
    def head_bytes(self) -> int:
        """Bytes of the keys, or of the values, of one head of one layer in one block: the smallest thing that moves."""
        return self.block_tokens * self.head_dim * ITEM_BYTES[self.dtype]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return self.layers * 2 * self.kv_heads * self.head_bytes


@dataclass(frozen=True, slots=True)
class KvShard:
    """Layers and KV heads of the whole model, counted from 0: those that one rank keeps, or a part of them."""

    first_layer: int
    layers: int
    first_head: int
    heads: int

    @property
    def end_layer(self) -> int:
        """The first layer after it."""
        return self.first_layer + self.layers

    @property
    def end_head(self) -> int:
        """The first head after it."""
        return self.first_head + self.heads


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block and the generation it had when it was given out; freeing a block raises its generation."""

    index: int
    generation: int


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """The KV memory of one rank, in the rank's own process: blocks one after another, each `shard` of a whole block."""

    shard: KvShard
    layout: KvLayout  # of its blocks: layers and heads are those of the shard
    memory: "torch.Tensor"  # [blocks, layout.block_bytes] of uint8, contiguous, on the CPU or on a GPU
    file: int | None = None  # descriptor of the file that CPU memory is, from its start, for other processes to map

    @property
    def blocks(self) -> int:
        """Blocks that exist."""
        return len(self.memory)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; random numbers are a function of (seed, position in the output)."""

    temperature: float = 0.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    seed: int = 0
    min_p: float = 0.0  # share of the most likely token's probability that others need
    repetition_penalty: float = 1.0  # on tokens of prompt and output
    presence_penalty: float = 0.0  # once on tokens of the output
    frequency_penalty: float = 0.0  # for each occurrence in the output
    logit_bias: tuple[tuple[int, float], ...] = ()  # added to the logits of these tokens, each named once
    min_tokens: int = 0  # of the output, before which no stop token is chosen
    logprobs: int | None = None  # how many of the most likely tokens to tell with each token; None: not even its own


@dataclass(frozen=True, slots=True)
class Work:
    """One leg of a request. `output` holds the tokens that exist already; decode needs at least one."""

    request_id: str
    prompt: tuple[int, ...]
    output: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    stop_token_ids: frozenset[int] = frozenset()
    max_tokens: int | None = None  # of the whole request, `output` included
    prefix_salt: str = ""  # the KV of equal beginnings is shared among requests of equal salt only


class FinishReason(StrEnum):
    """Why a request ended well."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log probabilities by the model's own logits: of a token, and of the most likely ones in falling order."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Token:
    """The next token of a request; `finish` when it is the last one, `logprobs` when they were asked for."""

    request_id: str
    token: int
    finish: FinishReason | None = None
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The first tokens of a request are computed next; the KV of `cached_tokens` of its prompt was there already."""

    request_id: str
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class PutBack:
    """There was no memory left for this request, the youngest: it has left the engine, to be continued elsewhere."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Parked:
    """Prefill is over and the KV of `tokens` tokens stays in `blocks` until `release`."""

    request_id: str
    blocks: tuple[BlockRef, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Reserved:
    """A decode request got its blocks; the server now fills `import_target` and then calls `imported`.

    From here on its blocks are pinned once, until `imported`, or `unpin` when the import is given up. That holds for a
    request that is cancelled meanwhile too: a transfer may still be writing to its blocks.
    """

    request_id: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """The model computed no finite logits for this request alone; its memory is free again."""

    request_id: str
    message: str


@dataclass(frozen=True, slots=True)
class Starved:
    """There was no memory for a step of this request alone; what it held is free again."""

    request_id: str
    message: str


Happening = Started | Token | Parked | Reserved | PutBack | Dropped | Starved


@dataclass(frozen=True, slots=True)
class Load:
    """What waits and what runs, for routing and for metrics."""

    queued_tokens: int
    waiting: int
    running: int
    free_blocks: int
    total_blocks: int
    parked: int


@dataclass(frozen=True, slots=True)
class Description:
    """What never changes while the engine lives."""

    layout: KvLayout  # of the whole model
    shards: tuple[KvShard, ...]  # what each rank holds of it, in the order of ranks
    weights_digest: str
    dtype: str
    max_model_length: int  # prompt + output tokens of one request
    max_request_tokens: int  # the most that one request can hold in this engine's KV memory


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault
    """Work that the engine does not take; the text says the limit and the value.

    Itself, not one of its subclasses, it means that the work is invalid: no engine would take it at any time.
    """


class QueueFull(Refused):
    """The bounded waiting queue is full; the same work can be taken later."""


class TooLong(Refused):
    """The work never fits this engine."""


class StaleBlocks(Exception):  # noqa: N818
    """Blocks that were freed, reused or never belonged to the request."""


class Engine(Protocol):
    """Prefill and decode engines are twins: the same calls, other happenings."""

    @property
    def description(self) -> Description:
        """What the engine is."""
        ...

    @property
    def region(self) -> Region:
        """KV memory of the rank in this process; constant."""
        ...

    def load(self) -> Load:
        """What it has to do right now."""
        ...

    def admit(self, work: Work) -> None:
        """Queue one leg, first come first served. Raises `QueueFull`, `TooLong`, or `Refused` when it is invalid."""
        ...

    def cancel(self, request_id: str) -> None:
        """Free all that the request holds; pinned blocks are freed with their last pin. Unknown ids are ignored."""
        ...

    def has_work(self) -> bool:
        """Whether `step` would do anything now."""
        ...

    def begin(self) -> tuple[Happening, ...]:
        """What `step` would begin with, for who tells of it before anything is computed: who runs, and who leaves."""
        ...

    def step(self) -> tuple[Happening, ...]:
        """Run one batch and tell what happened, in order. Returns at once when nothing can run.

        `Reserved` comes alone and without a batch, so that its pull can begin before the next one runs.
        """
        ...

    def export(self, request_id: str, blocks: tuple[BlockRef, ...]) -> None:
        """Pin the parked blocks of a request for reading, on every rank. Raises `StaleBlocks`."""
        ...

    def unpin(self, request_id: str) -> None:
        """End one `export`, or the import of a `Reserved` request that is given up. Unknown ids are ignored."""
        ...

    def release(self, request_id: str) -> None:
        """Free the parked blocks of a request once no export is left. Unknown ids are ignored."""
        ...

    def import_target(self, request_id: str) -> tuple[BlockRef, ...]:
        """Blocks of a `Reserved` request, on every rank, for the KV of all its tokens but the last."""
        ...

    def imported(self, request_id: str) -> None:
        """The KV is complete and nothing writes to it any more: the request joins the batch at the next step.

        A cancelled request just loses its pin. Unknown ids are ignored.
        """
        ...
