"""Which module reads which family's configuration."""

from collections.abc import Callable, Mapping
from typing import Final

from distserve_worker.weights.config import Architecture, ModelConfig
from distserve_worker.weights.families import gpt2, llama, mistral, opt, qwen2, qwen3
from distserve_worker.weights.fields import Fields

READERS: Final[Mapping[Architecture, Callable[[Fields, frozenset[int]], ModelConfig]]] = {
    Architecture.GPT2: gpt2.read,
    Architecture.LLAMA: llama.read,
    Architecture.MISTRAL: mistral.read,
    Architecture.OPT: opt.read,
    Architecture.QWEN2: qwen2.read,
    Architecture.QWEN3: qwen3.read,
}
