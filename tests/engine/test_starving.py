"""A request for which there is no memory fails, others and the engine go on. How much memory there is, is played."""

from typing import Any, Final

import pytest
import torch
from distserve_testing.engines import EngineMaker, steps
from distserve_testing.models import TinyLlama
from torch.utils._python_dispatch import TorchDispatchMode

from distserve_worker.engine.blueprint import EngineRole, ModelDoesNotFit
from distserve_worker.engine.interface import Engine, Happening, Sampling, Started, Starved, Token, Work

SHORT: Final = (3, 4, 5)
LONG: Final = (7,) * 200
VOCABULARY: Final = 211
OF_A_GPU: Final = torch.OutOfMemoryError("CUDA out of memory")
OF_A_CPU: Final = RuntimeError(
    "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte"
)


class LittleMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Enough for a few tokens: whoever asks for more at once is told so as torch does it."""

    def __init__(self, error: Exception = OF_A_GPU, bytes_at_once: int = 16 << 10) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._error = error
        self._bytes_at_once = bytes_at_once
        self.refused = 0

    def __torch_dispatch__(self, function: Any, _types: Any, arguments: Any = (), more: Any = None) -> Any:
        made = function(*arguments, **(more or {}))
        is_new = isinstance(made, torch.Tensor) and not function._schema.is_mutable and not function.is_view
        if is_new and made.nbytes > self._bytes_at_once:
            self.refused += 1
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
        Starved("long", f"there was no memory for its step of 200 tokens: {error}")
    ]
    assert engine.load().free_blocks == engine.load().total_blocks
    assert tokens_of(run(engine, Work("short", SHORT)), "short") == tiny.greedy(SHORT, 1)
    engine.admit(Work("again", LONG))
    started, token, _ = steps(engine)
    assert started == Started("again", cached_tokens=0)
    assert token == Token("again", tiny.greedy(LONG, 1)[0])


def test_a_step_without_memory_is_computed_in_parts_and_later_ones_are_right(
    make_engine: EngineMaker, tiny: TinyLlama
) -> None:
    """What runs is not harmed, nor others that sit in the tables of the one that failed, or share its beginning."""
    engine = make_engine("colocated", chunk_tokens=256)
    shared = (9,) * 16
    with LittleMemory():
        engine.admit(Work("runs", (*shared, *SHORT), max_tokens=20))
        engine.step()
        engine.step()
        engine.admit(Work("long", LONG))
        happenings = list(steps(engine))
    assert [one.request_id for one in happenings if isinstance(one, Starved)] == ["long"]
    assert tokens_of(happenings, "runs") == tiny.greedy((*shared, *SHORT), 20)[2:]
    assert engine.load().free_blocks == engine.load().total_blocks
    for request_id, prompt in (("like it", (*shared, *SHORT)), ("other", (*shared, 8)), ("long", LONG)):
        engine.admit(Work(request_id, prompt, max_tokens=6))
    happenings = list(steps(engine))
    assert tokens_of(happenings, "like it") == tiny.greedy((*shared, *SHORT), 6)
    assert tokens_of(happenings, "other") == tiny.greedy((*shared, 8), 6)
    assert tokens_of(happenings, "long") == tiny.greedy(LONG, 6)


@pytest.mark.parametrize("role", ["prefill", "colocated"])
def test_prompts_beside_one_without_memory_are_computed(
    make_engine: EngineMaker, tiny: TinyLlama, role: EngineRole
) -> None:
    engine = make_engine(role)
    prompts = {"first": SHORT, "long": LONG, "last": (8, 8, 8)}
    happenings = run(engine, *(Work(name, prompt, max_tokens=1) for name, prompt in prompts.items()))
    assert [one.request_id for one in happenings if isinstance(one, Starved)] == ["long"]
    for name in ("first", "last"):
        assert tokens_of(happenings, name) == tiny.greedy(prompts[name], 1)


def test_requests_that_run_are_halved_until_there_is_memory(make_engine: EngineMaker, tiny: TinyLlama) -> None:
    """Of different lengths, so that they are not computed in the order in which they came."""
    engine = make_engine("colocated")
    prompts = {str(number): (number + 2,) * (1 + 7 * number % 11) for number in range(9)}
    for name, prompt in prompts.items():
        engine.admit(Work(name, prompt, max_tokens=6))
    happenings = list(engine.step())
    with LittleMemory(bytes_at_once=2 << 10) as memory:
        happenings += steps(engine)
    assert memory.refused > 2, "it is halved again"
    assert not [one for one in happenings if isinstance(one, Starved)]
    for name, prompt in prompts.items():
        assert tokens_of(happenings, name) == tiny.greedy(prompt, 6)


def test_choosing_tokens_is_a_part_of_the_step(make_engine: EngineMaker) -> None:
    """Logits of all rows fit, and an order of their tokens, twice as large, for half of them."""
    sampling = Sampling(temperature=1, top_p=0.9, seed=3)
    works = [Work(str(number), (number + 2,), sampling=sampling, max_tokens=5) for number in range(4)]
    engine, scarce = make_engine("colocated"), make_engine("colocated")
    for work in works:
        engine.admit(work)
        scarce.admit(work)
    usual = list(steps(engine))
    with LittleMemory(bytes_at_once=len(works) * VOCABULARY * 4) as memory:
        happenings = list(steps(scarce))
    assert memory.refused > 0
    for work in works:
        assert tokens_of(happenings, work.request_id) == tokens_of(usual, work.request_id)


def test_an_engine_in_which_no_step_gets_memory_ends(make_engine: EngineMaker) -> None:
    """Else it would have the shortest queue, and fail whatever comes."""
    engine = make_engine("prefill")
    few = (7,) * 100
    for number in range(4):
        run(engine, Work(f"few {number}", few))
        if number % 2:
            run(engine, Work(f"short {number}", SHORT))
    for number in (4, 5):
        run(engine, Work(f"few {number}", few))
    with pytest.raises(ModelDoesNotFit, match="a step needs more memory than is left"):
        run(engine, Work("few 6", few))


def test_a_prompt_that_is_too_long_for_the_memory_may_come_again_and_again(
    make_engine: EngineMaker, tiny: TinyLlama
) -> None:
    """As clients do that try three times: others are short."""
    engine = make_engine("prefill")
    for number in range(5):
        assert [type(one) for one in run(engine, Work(f"long {number}", LONG))] == [Starved]
    assert tokens_of(run(engine, Work("short", SHORT)), "short") == tiny.greedy(SHORT, 1)


def test_any_other_error_ends_the_engine(make_engine: EngineMaker) -> None:
    with pytest.raises(RuntimeError, match="a kernel"):
        run(make_engine("prefill"), Work("long", LONG), error=RuntimeError("a kernel failed"))
