"""How an error is told that nobody foresaw."""


def described(error: BaseException) -> str:
    """Its kind and its text; `repr` would leave out the file of an OSError."""
    return f"{type(error).__name__}: {error}"
