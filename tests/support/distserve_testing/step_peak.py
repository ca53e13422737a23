"""Serves prompts in a prefill engine and prints by how many bytes the process grew at most, and how many were counted.

Arguments: path of a model, dtype, how many prompts, tokens of each. Every parameter that makes a step larger is set.
"""

import json
import re
import sys
from pathlib import Path

import torch

from distserve_worker.engine.blueprint import EngineConfig, blueprint_of
from distserve_worker.engine.building import build_rank, engine_of
from distserve_worker.engine.execution.executor import OneRank
from distserve_worker.engine.interface import Engine, Sampling, Token, Work
from distserve_worker.engine.work_memory import work_bytes

_SAMPLING = Sampling(temperature=0.7, seed=1, top_p=0.9, frequency_penalty=0.5, logprobs=5)


def _status(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _serve(engine: Engine, prompts: int, tokens: int) -> None:
    """All of them get their token."""
    for number in range(prompts):
        prompt = tuple((number + place) % 300 for place in range(tokens))
        engine.admit(Work(f"{tokens} {number}", prompt, sampling=_SAMPLING, max_tokens=1))
    served = 0
    while engine.has_work():
        served += sum(isinstance(happening, Token) for happening in engine.step())
    assert served == prompts


def main() -> None:
    path, dtype, prompts, tokens = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    blueprint = blueprint_of(EngineConfig("prefill", path, 32 << 20, dtype, max_model_length=8192))
    built = build_rank(blueprint, 0)
    engine = engine_of(blueprint, built, OneRank(built.rank))
    built.region.memory.fill_(0)  # its pages are there
    _serve(engine, 1, 300)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far was that of loading
    _serve(engine, prompts, tokens)
    print(json.dumps({"grown": _status("VmHWM") - before, "counted": work_bytes(blueprint, 0)}))


if __name__ == "__main__":
    main()
