"""A workload from the short texts in which people name one."""

import pathlib
from typing import Final

from distserve_operator.placement.workload.arrivals import Arrivals, Gamma, Poisson, Regular
from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.lengths import Fixed, Lengths, LogNormal
from distserve_operator.placement.workload.reading import read_lengths, sharegpt_lengths

LENGTH_FORMS: Final = "FILE.csv, sharegpt, fixed:PROMPT,OUTPUT or lognormal:MEAN_IN,CV_IN,MEAN_OUT,CV_OUT"
ARRIVAL_FORMS: Final = "poisson, gamma:CV or fixed"


def choose_lengths(text: str) -> Lengths:
    """Lengths in one of `LENGTH_FORMS`; a file is read. Raises WorkloadError."""
    kind, _, rest = text.partition(":")
    match kind:
        case "sharegpt" if not rest:
            return sharegpt_lengths()
        case "fixed":
            if not all(number.is_integer() for number in _numbers(text, rest, 2)):
                raise WorkloadError(f"{text!r} has parts of a token: expected whole numbers, fixed:PROMPT,OUTPUT")
            prompt, output = map(_whole, rest.split(","))
            return Fixed(prompt, output)
        case "lognormal":
            return LogNormal(*_numbers(text, rest, 4))
    path = pathlib.Path(text)
    if path.suffix != ".csv" and not path.is_file():
        raise WorkloadError(f"{text!r} names no lengths: expected {LENGTH_FORMS}")
    return read_lengths(path)


def choose_arrivals(text: str) -> Arrivals:
    """Arrivals in one of `ARRIVAL_FORMS`. Raises WorkloadError."""
    kind, _, rest = text.partition(":")
    match kind:
        case "poisson" if not rest:
            return Poisson()
        case "fixed" if not rest:
            return Regular()
        case "gamma" if rest:
            (cv,) = _numbers(text, rest, 1)
            return Gamma(cv)
    raise WorkloadError(f"{text!r} names no arrivals: expected {ARRIVAL_FORMS}")


def _whole(part: str) -> int:
    """The very number that is written: above 2^53 floating point has its neighbours."""
    digits = part.strip()
    return int(digits) if digits.isdecimal() else int(float(part))


def _numbers(text: str, rest: str, count: int) -> list[float]:
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        forms = LENGTH_FORMS if count > 1 else ARRIVAL_FORMS
        raise WorkloadError(f"{text!r} does not have its {count} number{'s' * (count > 1)}: expected {forms}")
    return numbers
