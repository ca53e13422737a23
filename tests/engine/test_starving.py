"""A step for which there is no memory fails its own requests, and the engine goes on. How much there is, is played."""

from typing import Any, Final

import pytest
import torch
from distserve_testing.engines import EngineMaker, steps
from distserve_testing.models import TinyLlama
from torch.utils._python_dispatch import TorchDispatchMode

from distserve_worker.engine.blueprint import ModelDoesNotFit
from distserve_worker.engine.interface import Engine, Happening, Started, Starved, Token, Work

SHORT: Final = (3, 4, 5)
LONG: Final = (7,) * 200
OF_A_GPU: Final = torch.OutOfMemoryError("CUDA out of memory")
OF_A_CPU: Final = RuntimeError(
    "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte"
)


class LittleMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Enough for a few tokens: whoever asks for more at once is told so as torch does it."""

    def __init__(self, error: Exception = OF_A_GPU) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._error = error

    def __torch_dispatch__(self, function: Any, _types: Any, arguments: Any = (), more: Any = None) -> Any:
        made = function(*arguments, **(more or {}))
        is_new = isinstance(made, torch.Tensor) and not function._schema.is_mutable and not function.is_view
        if is_new and made.nbytes > 16 << 10:
            raise self._error
        return made


def run(engine: Engine, *works: Work, error: Exception = OF_A_GPU) -> list[Happening]:
    for work in works:
        engine.admit(work)
    with LittleMemory(error):
        return [happening for happening in steps(engine) if not isinstance(happening, Started)]


def tokens_of(happenings: list[Happening], request_id: str) -> list[int]:
    return [one.token for one in happenings if isinstance(one, Token) and one.request_id == request_id]


@pytest.mark.parametrize("error", [OF_A_GPU, OF_A_CPU], ids=["gpu", "cpu"])
def test_a_prompt_without_memory_fails_with_its_reason_and_holds_nothing(
    make_engine: EngineMaker, tiny: TinyLlama, error: Exception
) -> None:
    """The next one is served, and nothing of what was computed is found."""
    engine = make_engine("prefill")
    assert run(engine, Work("long", LONG), error=error) == [
        Starved("long", f"there was no memory for its step: {error}")
    ]
    assert engine.load().free_blocks == engine.load().total_blocks
    assert tokens_of(run(engine, Work("short", SHORT)), "short") == tiny.greedy(SHORT, 1)
    engine.admit(Work("again", LONG))
    started, token, _ = steps(engine)
    assert started == Started("again", cached_tokens=0)
    assert token == Token("again", tiny.greedy(LONG, 1)[0])


def test_requests_that_run_in_such_a_step_fail_too_and_later_ones_are_right(
    make_engine: EngineMaker, tiny: TinyLlama
) -> None:
    """Also where they sit in the tables of the one that failed, and where they share its beginning."""
    engine = make_engine("colocated", chunk_tokens=256)
    shared = (9,) * 16
    with LittleMemory():
        engine.admit(Work("runs", (*shared, *SHORT), max_tokens=20))
        engine.step()
        engine.step()
        engine.admit(Work("long", LONG))
        starved = [happening.request_id for happening in engine.step() if isinstance(happening, Starved)]
    assert sorted(starved) == ["long", "runs"]
    assert engine.load().free_blocks == engine.load().total_blocks
    for request_id, prompt in (("like it", (*shared, *SHORT)), ("other", (*shared, 8)), ("long", LONG)):
        engine.admit(Work(request_id, prompt, max_tokens=6))
    happenings = list(steps(engine))
    assert tokens_of(happenings, "like it") == tiny.greedy((*shared, *SHORT), 6)
    assert tokens_of(happenings, "other") == tiny.greedy((*shared, 8), 6)
    assert tokens_of(happenings, "long") == tiny.greedy(LONG, 6)


def test_an_engine_in_which_no_step_gets_memory_ends(make_engine: EngineMaker) -> None:
    """Else it would have the shortest queue, and fail whatever comes."""
    engine = make_engine("prefill")
    for number in range(4):
        run(engine, Work(f"long {number}", LONG))
        if number % 2:
            run(engine, Work(f"short {number}", SHORT))
    for number in (4, 5):
        run(engine, Work(f"long {number}", LONG))
    with pytest.raises(ModelDoesNotFit, match="a step needs more memory than is left"):
        run(engine, Work("long 6", LONG))


def test_any_other_error_ends_the_engine(make_engine: EngineMaker) -> None:
    with pytest.raises(RuntimeError, match="a kernel"):
        run(make_engine("prefill"), Work("long", LONG), error=RuntimeError("a kernel failed"))
