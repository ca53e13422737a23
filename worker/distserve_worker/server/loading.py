"""Builds the engine on its thread, with all its ranks, and puts a name on whatever goes wrong with that."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from distserve_proto.contract import Role
from distserve_worker.engine.blueprint import Blueprint, EngineConfig, EngineRole, blueprint_of
from distserve_worker.engine.interface import Engine
from distserve_worker.engine.parallel import Grid
from distserve_worker.engine.work_memory import most_tokens
from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.arguments import WorkerConfig
from distserve_worker.server.faults import faults
from distserve_worker.server.memory_limit import memory_limit, require_fit
from distserve_worker.server.pinning import pin_torch
from distserve_worker.server.ranks.launching import RankProcesses
from distserve_worker.server.ranks.messages import Assignment
from distserve_worker.server.ranks.watching import Listener
from distserve_worker.weights.locating import locate
from distserve_worker.weights.tokenizer_digest import tokenizer_digest

_ROLES: dict[Role, EngineRole] = {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.COLOCATED: "colocated"}


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine, and what the server knows of it besides."""

    engine: Engine
    tokenizer_digest: str  # of the tokenizer that belongs to its weights
    max_step_tokens: int
    ranks: RankProcesses | None = None  # those in other processes

    @property
    def transfers(self) -> list[Connection]:
        """Where ranks in other processes take orders about their KV memory from."""
        return self.ranks.transfers if self.ranks is not None else []

    def reason(self, error: BaseException) -> BaseException:
        """Why a step failed: often it is not its own fault but that of a rank that has gone."""
        failure = self.ranks.failure() if self.ranks is not None else None
        return failure or error


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who hears of the engine while it loads and afterwards; called from any thread."""

    downloading: Callable[[int, int], None]  # bytes, and of how many as far as is known
    progress: Callable[[float], None]  # share of the weights that are loaded
    failed: Callable[[WorkerFailure], None]  # a rank has ended


def load(config: WorkerConfig, threads: int, watcher: Watcher) -> Loaded:
    """Find the model, load it on all ranks and set the KV memory aside. Raises `WorkerFailure`."""
    with faults(config.model):
        if config.device == "cuda":
            _require_gpus(Grid(config.tp, config.pp))
        model = locate(config.model, downloading=watcher.downloading)
        digest = tokenizer_digest(model)  # first: a damaged file is found before torch is imported
        blueprint = _blueprint(config, model)
    each = max(1, threads // blueprint.grid.ranks)
    assignments = [
        Assignment(blueprint, rank, each, config.host, config.advertise_host) for rank in range(1, blueprint.grid.ranks)
    ]
    progress = _Progress(blueprint.grid.ranks, watcher.progress)
    ranks = RankProcesses(assignments, Listener(progress.of, watcher.failed)) if assignments else None
    pin_torch(each)
    try:
        require_fit(blueprint, memory_limit())
        with faults(config.model):
            engine = _engine(blueprint, ranks, progress)
    except BaseException:
        if ranks is not None:
            ranks.kill()
        raise
    return Loaded(engine, digest, most_tokens(blueprint.config, blueprint.max_model_length), ranks)


def _require_gpus(grid: Grid) -> None:
    """Before anything else: a model may take hours to download."""
    from distserve_worker.engine.devices import require_gpus

    require_gpus(grid)


def _blueprint(config: WorkerConfig, model: Path) -> Blueprint:
    planned = EngineConfig(
        role=_ROLES[config.role],
        model=model,
        kv_cache_bytes=config.kv_cache_bytes or 0,
        dtype=config.dtype,
        max_model_length=config.max_model_length,
        max_batch_tokens=config.max_batch_tokens,
        max_running=config.max_running,
        max_waiting=config.max_waiting,
        device=config.device,
        grid=Grid(config.tp, config.pp),
        chunk_tokens=config.chunk_tokens,
    )
    if config.kv_cache_bytes is None:
        planned = replace(planned, kv_cache_bytes=_all_that_is_left(planned))
    return blueprint_of(planned)


def _all_that_is_left(config: EngineConfig) -> int:
    from distserve_worker.engine.devices import cache_beside, rooms

    return cache_beside(config, rooms(config.grid))


class _Progress:
    """The share of all weights that is loaded, out of those of the ranks, which hold about as much each.

    Ranks are heard of from several threads; a share that another has overtaken stands until the next one.
    """

    def __init__(self, ranks: int, told: Callable[[float], None]) -> None:
        self._shares = dict.fromkeys(range(ranks), 0.0)
        self._told = told

    def of(self, rank: int, share: float) -> None:
        """A rank has loaded so much of its own."""
        self._shares[rank] = share
        self._told(sum(self._shares.values()) / len(self._shares))


def _engine(blueprint: Blueprint, ranks: RankProcesses | None, progress: _Progress) -> Engine:
    # imported here, on the engine thread: importing torch takes seconds, in which probes must be answered
    from distserve_worker.engine.building import build_rank, engine_of
    from distserve_worker.engine.execution.collectives import Meeting, PeerLost
    from distserve_worker.engine.execution.executor import Driver, OneRank

    own = partial(progress.of, 0)
    if ranks is None:
        built = build_rank(blueprint, 0, progress=own)
        return engine_of(blueprint, built, OneRank(built.rank))
    meeting = Meeting(blueprint.grid, 0)
    built = build_rank(blueprint, 0, meeting.collective, own)
    ranks.wait_until_loaded()
    port, device = meeting.host(), built.rank.memory.device
    try:
        ranks.meet(port, lambda: meeting.join(port, device))
    except PeerLost as error:
        raise ranks.failure() or error from error
    executor = Driver(built.rank, ranks.batches, meeting.pipe, blueprint.model.hidden)
    return engine_of(blueprint, built, executor)
