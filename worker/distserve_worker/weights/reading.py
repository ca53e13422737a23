"""Reads a model's configuration from whichever format its files have."""

from pathlib import Path

from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.gguf_config import config_of_gguf
from distserve_worker.weights.gguf_header import read_gguf_header
from distserve_worker.weights.huggingface_config import read_huggingface_config


def read_config(path: Path) -> ModelConfig:
    """The configuration of the GGUF file or Hugging Face folder at `path`.

    Raises `ModelNotFound` when nothing is there and `ModelInvalid` when the model cannot be served.
    """
    if path.is_dir():
        return read_huggingface_config(path)
    if path.is_file():
        return config_of_gguf(read_gguf_header(path))
    raise ModelNotFound(f"{path}: no such file or folder")
