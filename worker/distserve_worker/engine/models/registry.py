"""Which module runs which architecture."""

from collections.abc import Mapping
from typing import Final

from distserve_worker.engine.models import gpt2, llama, mistral, opt, qwen2, qwen3
from distserve_worker.engine.models.interface import Family
from distserve_worker.weights.config import Architecture

MODELS: Final[Mapping[Architecture, Family]] = {
    Architecture.GPT2: gpt2.FAMILY,
    Architecture.LLAMA: llama.FAMILY,
    Architecture.MISTRAL: mistral.FAMILY,
    Architecture.OPT: opt.FAMILY,
    Architecture.QWEN2: qwen2.FAMILY,
    Architecture.QWEN3: qwen3.FAMILY,
}
