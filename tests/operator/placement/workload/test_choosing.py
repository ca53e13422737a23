"""A workload can be named in a few words, and a wrong word is answered with the right ones."""

from pathlib import Path

import pytest

from distserve_operator.placement.workload.arrivals import Arrivals, Gamma, Poisson, Regular
from distserve_operator.placement.workload.choosing import choose_arrivals, choose_lengths
from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.lengths import Empirical, Fixed, Lengths, LogNormal


@pytest.mark.parametrize(
    ("text", "lengths"),
    [("fixed:512,64", Fixed(512, 64)), ("lognormal:760,0.7,190,1.2", LogNormal(760, 0.7, 190, 1.2))],
)
def test_lengths_are_named(text: str, lengths: Lengths) -> None:
    assert choose_lengths(text) == lengths


def test_lengths_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "l.csv"
    file.write_text("prompt_tokens,output_tokens\n1,2\n")
    assert choose_lengths(str(file)) == Empirical(((1, 2),))


def test_the_papers_lengths_are_shipped() -> None:
    lengths = choose_lengths("sharegpt")
    assert isinstance(lengths, Empirical)
    assert len(lengths.pairs) == 1600


@pytest.mark.parametrize(
    "text",
    [
        "fixed:512",
        "fixed:512,64,1",
        "fixed:a,b",
        "fixed:1.5,2",
        "lognormal:1,2,3",
        "lognormal:",
        "zipf:1,2",
        "",
        "sharegpt:2",
    ],
)
def test_other_lengths_are_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(WorkloadError, match=r"expected .*fixed:PROMPT,OUTPUT"):
        choose_lengths(text)


@pytest.mark.parametrize("text", ["fixed:0,64", "fixed:1,nan", "fixed:-1,2", "fixed:inf,1", "lognormal:1,nan,3,4"])
def test_numbers_that_are_no_lengths_are_refused(text: str) -> None:
    with pytest.raises(WorkloadError, match="expected"):
        choose_lengths(text)


@pytest.mark.parametrize(
    ("text", "arrivals"), [("poisson", Poisson()), ("gamma:2.5", Gamma(2.5)), ("fixed", Regular())]
)
def test_arrivals_are_named(text: str, arrivals: Arrivals) -> None:
    assert choose_arrivals(text) == arrivals


@pytest.mark.parametrize(
    "text", ["", "pareto", "gamma", "gamma:", "gamma:x", "gamma:0", "gamma:nan", "poisson:1", "fixed:2"]
)
def test_other_arrivals_are_refused(text: str) -> None:
    with pytest.raises(WorkloadError, match="expected"):
        choose_arrivals(text)
