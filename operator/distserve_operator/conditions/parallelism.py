"""Whether a model can be cut into the ranks of a shape, of models whose numbers are known; workers know it of all."""

from distserve_operator.api.shape import Shape
from distserve_operator.placement.catalogue.errors import UnknownModelError
from distserve_operator.placement.catalogue.uris import model_of_uri
from distserve_operator.placement.memory import split_problem
from distserve_operator.placement.model import ModelShape


def known_model(uri: str) -> ModelShape | None:
    """The model that a URI names; None when its numbers are not known."""
    try:
        return model_of_uri(uri)
    except UnknownModelError:
        return None


def cut_problem(model: ModelShape, shape: Shape) -> str | None:
    """Why no instance of this shape can be, with the numbers and what would do; None: it can."""
    problem = split_problem(model, shape.tp)
    if problem is not None:
        fitting = ", ".join(str(tp) for tp in range(1, model.heads + 1) if split_problem(model, tp) is None)
        return f"tp is {shape.tp}, but {problem}; tp can be {fitting}"
    if shape.pp > model.layers:
        return f"pp is {shape.pp}, but {model.name} has {model.layers} layers; lower it"
    return None
