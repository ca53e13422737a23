"""Steps, pulls and cancellations in any order, on memories so small that requests wait for each other."""

from dataclasses import dataclass, replace

import pytest
from distserve_testing.engines import EngineMaker, copy_kv, generate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distserve_worker.engine.interface import Dropped, Engine, Parked, Reserved, Sampling, Token, Work

PROMPT = tuple(range(100, 140))


class _Pair:
    """Two engines and what their servers would remember, driven by drawn choices."""

    def __init__(self, prefill: Engine, decode: Engine) -> None:
        self.prefill = prefill
        self.decode = decode
        self.outputs: dict[str, list[int]] = {}
        self.ended: set[str] = set()
        self.cancelled: set[str] = set()
        self._works: dict[str, Work] = {}
        self._parked: dict[str, Parked] = {}
        self._reserved: list[str] = []

    def submit(self, work: Work) -> None:
        self._works[work.request_id] = work
        self.outputs[work.request_id] = []
        self.prefill.admit(work)

    def step_prefill(self) -> None:
        for happening in self.prefill.step():
            match happening:
                case Token(request_id, token, finish):
                    self._take(request_id, token, ended=finish is not None)
                case Parked(request_id):
                    self._parked[request_id] = happening
                    self.decode.admit(replace(self._works[request_id], output=tuple(self.outputs[request_id])))

    def step_decode(self) -> None:
        for happening in self.decode.step():
            match happening:
                case Reserved(request_id):
                    self._reserved.append(request_id)
                case Token(request_id, token, finish):
                    self._take(request_id, token, ended=finish is not None)
                case Dropped():
                    raise AssertionError(happening)

    def pull(self, choice: int) -> None:
        if self._reserved:
            request_id = self._reserved.pop(choice % len(self._reserved))
            copy_kv(self.prefill, self.decode, self._parked.pop(request_id))

    def cancel(self, request_id: str) -> None:
        self.ended.add(request_id)
        self.cancelled.add(request_id)
        self._parked.pop(request_id, None)
        self.prefill.cancel(request_id)
        self.decode.cancel(request_id)
        if request_id in self._reserved:
            self._reserved.remove(request_id)
            self.decode.unpin(request_id)

    def step_all(self) -> None:
        self.step_prefill()
        self.step_decode()
        self.pull(0)

    def _take(self, request_id: str, token: int, *, ended: bool) -> None:
        assert request_id not in self.ended
        self.outputs[request_id].append(token)
        if ended:
            self.ended.add(request_id)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Requests of one kind have one text."""

    prompt_tokens: int
    max_tokens: int
    temperature: float

    def work(self, request_id: str) -> Work:
        sampling = Sampling(self.temperature, seed=self.prompt_tokens)
        return Work(request_id, PROMPT[: self.prompt_tokens], max_tokens=self.max_tokens, sampling=sampling)


KINDS = st.builds(_Kind, st.integers(1, 40), st.integers(1, 24), st.sampled_from([0.0, 1.0]))
EVENTS = st.sampled_from(["prefill", "decode", "decode", "pull", "pull", "all", "all", "cancel"])


def _small(make_engine: EngineMaker, role: str) -> Engine:
    return make_engine(role, blocks=6, max_batch_tokens=48, max_running=3)


def _happen(pair: _Pair, event: str, data: st.DataObject) -> None:
    match event:
        case "prefill":
            pair.step_prefill()
        case "decode":
            pair.step_decode()
        case "pull":
            pair.pull(data.draw(st.integers(0, 7)))
        case "all":
            pair.step_all()
        case "cancel":
            pair.cancel(data.draw(st.sampled_from(sorted(set(pair.outputs) - pair.ended))))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=st.lists(KINDS, min_size=1, max_size=8), data=st.data())
def test_every_request_ends_with_its_own_text_and_no_block_stays_held(
    make_engine: EngineMaker, texts: dict[_Kind, list[int]], kinds: list[_Kind], data: st.DataObject
) -> None:
    """B5, B14."""
    pair = _Pair(_small(make_engine, "prefill"), _small(make_engine, "decode"))
    for number, kind in enumerate(kinds):
        pair.submit(kind.work(str(number)))
    while len(pair.ended) < len(kinds):
        _happen(pair, data.draw(EVENTS), data)
    for engine in (pair.prefill, pair.decode):
        assert engine.load().free_blocks == engine.load().total_blocks
        assert not engine.has_work()
    for number, kind in enumerate(kinds):
        if kind not in texts:
            alone = generate(_small(make_engine, "prefill"), _small(make_engine, "decode"), [kind.work("alone")])
            texts[kind] = alone["alone"]
        output = pair.outputs[str(number)]
        assert output == texts[kind][: len(output)]
        assert len(output) == len(texts[kind]) or str(number) in pair.cancelled


@pytest.fixture(scope="module")
def texts() -> dict[_Kind, list[int]]:
    """Text of each kind of request on engines of its own."""
    return {}
