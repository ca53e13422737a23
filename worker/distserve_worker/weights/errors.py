"""What can be wrong with a model before any of it runs."""


class ModelNotFound(Exception):  # noqa: N818 - named as the exit reason that a user sees
    """Nothing is at the model's path or URI; the text names it."""


class ModelInvalid(Exception):  # noqa: N818
    """The model's files are there but cannot be served; the text names the file and what is wrong in it."""
