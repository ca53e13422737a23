"""Which module runs which architecture."""

from collections.abc import Callable
from typing import Final

import torch

from distserve_worker.engine.models.interface import CausalModel, Weights
from distserve_worker.engine.models.llama import Llama
from distserve_worker.weights.config import Architecture, ModelConfig

MODELS: Final[dict[Architecture, Callable[[ModelConfig, Weights, torch.device], CausalModel]]] = {
    Architecture.LLAMA: Llama,
}
