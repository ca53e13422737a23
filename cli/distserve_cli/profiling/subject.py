"""Which model is measured, under the name that plans know it by."""

from dataclasses import dataclass

from distserve_cli.planning.errors import BadInput
from distserve_operator.placement.catalogue.errors import UnknownModelError
from distserve_operator.placement.catalogue.uris import model_of_uri
from distserve_operator.placement.model import ModelShape, WeightType
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.locating import locate
from distserve_worker.weights.reading import read_config


@dataclass(frozen=True, slots=True)
class Subject:
    """A model on this machine. `planned_as` is what `distserve plan --model` takes; None: nothing yet."""

    name: str
    planned_as: str | None
    weight_type: WeightType


def identify(model: str, weight_type: WeightType) -> Subject:
    """The model at a path or URI: by the catalogue if it is one of those, else by its file or folder.

    Raises:
        BadInput: nothing is there, or nothing that the engine can run.
    """
    try:
        path = locate(model)
        config = read_config(path)
    except ModelNotFound as error:
        raise _bad(model, error, "give a GGUF file or a folder of Hugging Face") from error
    except ModelInvalid as error:
        raise _bad(model, error, "give a model that workers can serve") from error
    known = _known(model if "://" in model else path.resolve().as_uri(), weight_type)
    if known is not None and _same_numbers(known, config):
        return Subject(known.name, known.name, weight_type)
    path = path.resolve()
    return Subject(path.name, str(path), weight_type) if path.is_dir() else Subject(path.stem, None, weight_type)


def _bad(model: str, error: Exception, fix: str) -> BadInput:
    return BadInput(f"--model {model}: {str(error).removeprefix(f'{model}: ')}; {fix}")


def _known(uri: str, weight_type: WeightType) -> ModelShape | None:
    try:
        return model_of_uri(uri, weight_type)
    except UnknownModelError:
        return None


def _same_numbers(known: ModelShape, config: ModelConfig) -> bool:
    """Names are given freely: a file called after a model may hold another one."""
    return (known.layers, known.hidden, known.heads, known.kv_heads, known.head_dim, known.ffn) == (
        config.layers,
        config.hidden,
        config.heads,
        config.kv_heads,
        config.head_dim,
        config.ffn,
    )
