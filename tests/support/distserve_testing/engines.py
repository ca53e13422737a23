"""Drives a prefill and a decode engine in one process, as two workers' servers would."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from distserve_worker.engine.interface import (
    Dropped,
    Engine,
    Happening,
    Parked,
    PutBack,
    Reserved,
    Started,
    Starved,
    Token,
    Work,
)

EngineMaker = Callable[..., Engine]

_STEPS = 10_000  # far more than any test needs: a run that does not end fails


def steps(engine: Engine) -> Iterable[Happening]:
    """Happenings until the engine has nothing to do."""
    for _ in range(_STEPS):
        if not engine.has_work():
            return
        yield from engine.step()
    raise AssertionError(f"the engine still has work after {_STEPS} steps: {engine.load()}")


def copy_kv(prefill: Engine, decode: Engine, parked: Parked) -> None:
    """What a pull does, without a wire."""
    prefill.export(parked.request_id, parked.blocks)
    for stored, room in zip(parked.blocks, decode.import_target(parked.request_id), strict=True):
        decode.region.memory[room.index] = prefill.region.memory[stored.index]
    prefill.unpin(parked.request_id)
    prefill.release(parked.request_id)
    decode.imported(parked.request_id)


def prefilled(prefill: Engine, works: Iterable[Work]) -> tuple[dict[str, Work], dict[str, Parked]]:
    """Prefill `works`: each work with its first token, and what was parked of those that go on."""
    done = {work.request_id: work for work in works}
    for work in done.values():
        prefill.admit(work)
    parked = {}
    for happening in steps(prefill):
        match happening:
            case Token(request_id, token):
                done[request_id] = replace(done[request_id], output=(*done[request_id].output, token))
            case Parked(request_id):
                parked[request_id] = happening
            case Started():
                pass
            case _:
                raise AssertionError(happening)
    return done, parked


def generate(prefill: Engine, decode: Engine, works: Iterable[Work]) -> dict[str, list[int]]:
    """Output tokens of each request, prefilled on one engine and decoded on the other in one batch."""
    done, parked = prefilled(prefill, works)
    outputs = defaultdict(list, {request_id: list(work.output) for request_id, work in done.items()})
    for request_id in parked:
        decode.admit(done[request_id])
    for happening in steps(decode):
        match happening:
            case Reserved(request_id):
                copy_kv(prefill, decode, parked[request_id])
            case Token(request_id, token):
                outputs[request_id].append(token)
            case Dropped() | Parked() | PutBack() | Started() | Starved():
                raise AssertionError(happening)
    return dict(outputs)
