"""Times steps of the engine against transformers on the same weights: `python -m distserve_worker.benching.engines`.

Both take turns in one process, in FP32 and with the same threads. Prints JSON.
"""

import argparse
import json
import logging
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch

from distserve_worker.engine.blueprint import EngineConfig
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.interface import Engine, Reserved, Token, Work

_PROMPTS: Final = (128, 512, 1024)
_BATCHES: Final = (1, 8, 32)
_CONTEXT: Final = 256  # tokens of each request of a decode batch
_TURNS: Final = 9  # of each; the first is not counted
_KV_BYTES: Final = 2 << 30


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of each step on either side; `size`: tokens of the prompt, or requests of the decode batch."""

    phase: Literal["prefill", "decode"]
    size: int
    engine: list[float]
    transformers: list[float]

    def summary(self) -> dict[str, object]:
        """The samples, and how many times as fast the engine is by their medians."""
        ratio = statistics.median(self.transformers) / statistics.median(self.engine)
        return asdict(self) | {"ratio": ratio}


class Reference:
    """The same model in transformers."""

    def __init__(self, path: Path) -> None:
        # imported here: it comes with the tests' dependencies only
        import transformers

        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        if path.is_dir():
            model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        else:
            model = _from_gguf(path)
        self._model: Any = model.eval()
        self.vocabulary: int = model.config.vocab_size

    def prefill(self, tokens: Sequence[int]) -> float:
        """Seconds from a prompt to its first token."""
        with torch.inference_mode():
            started = time.perf_counter()
            out = self._model(torch.tensor([tokens]), use_cache=True, logits_to_keep=1)
            out.logits.argmax(dim=-1).tolist()
            return time.perf_counter() - started

    def decode(self, batch: int, context: int) -> Iterator[float]:
        """Seconds of one step after the other of a batch, whose contexts begin equal."""
        with torch.inference_mode():
            tokens = torch.randint(0, self.vocabulary, (batch, context))
            cache = self._model(tokens, use_cache=True, logits_to_keep=1).past_key_values
            chosen = tokens[:, -1:]
            while True:
                started = time.perf_counter()
                chosen = self._model(chosen, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1, True)
                yield time.perf_counter() - started


def _from_gguf(path: Path) -> Any:  # noqa: ANN401 - a class of the model's own
    """By transformers' parts: its whole wants another package for it."""
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = transformers.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"], strict=False)
    return model


def measure(path: Path) -> Iterator[Sample]:
    """Prompts one by one, then decode batches."""
    reference = Reference(path)
    prefill = build_engine(EngineConfig("prefill", path, _KV_BYTES, max_batch_tokens=max(_PROMPTS)))
    for size in _PROMPTS:
        turns = (_tokens(reference.vocabulary, size, turn) for turn in range(_TURNS))
        pairs = [(_prefill(prefill, tokens), reference.prefill(tokens)) for tokens in turns]
        yield _sample("prefill", size, pairs)
    del prefill
    decode = build_engine(EngineConfig("decode", path, _KV_BYTES, max_running=max(_BATCHES)))
    for size in _BATCHES:
        theirs, ours = reference.decode(size, _CONTEXT), _decode(decode, size, reference.vocabulary)
        yield _sample("decode", size, [(next(ours), next(theirs)) for _ in range(_TURNS)])
        for number in range(size):
            decode.cancel(str(number))


def _sample(phase: Literal["prefill", "decode"], size: int, pairs: Sequence[tuple[float, float]]) -> Sample:
    engine, transformers = ([pair[side] for pair in pairs[1:]] for side in (0, 1))
    return Sample(phase, size, engine, transformers)


def _tokens(vocabulary: int, count: int, seed: int) -> tuple[int, ...]:
    return tuple(random.Random(seed).choices(range(vocabulary), k=count))  # noqa: S311 - no secret


def _timed(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def _prefill(engine: Engine, tokens: tuple[int, ...]) -> float:
    engine.admit(Work("prompt", tokens, prefix_salt=str(len(tokens))))  # nothing of a shorter prompt is found
    seconds = _timed(engine.step)
    engine.cancel("prompt")
    return seconds


def _decode(engine: Engine, batch: int, vocabulary: int) -> Iterator[float]:
    """Steps of a batch whose KV is what the memory happens to hold: only its size matters."""
    for number in range(batch):
        tokens = _tokens(vocabulary, _CONTEXT + 1, number)
        engine.admit(Work(str(number), tokens[:-1], tokens[-1:], max_tokens=10 * _TURNS))
    reserved = engine.step()
    assert [type(one) for one in reserved] == [Reserved] * batch, reserved
    for number in range(batch):
        for block in engine.import_target(str(number)):
            engine.region.memory[block.index].zero_()
        engine.imported(str(number))
    while True:
        told: list[object] = []
        yield _timed(lambda: told.extend(engine.step()))  # noqa: B023 - called at once
        assert [type(one) for one in told] == [Token] * batch, told


def main() -> int:
    """Print the samples of the model that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="GGUF file or Hugging Face folder")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(arguments.threads)
    json.dump([sample.summary() for sample in measure(arguments.model)], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
