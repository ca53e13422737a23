"""Recorded requests are read as they are, and a broken line is named by its number, its value and what is expected."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.reading import read_lengths, read_trace
from distserve_operator.placement.workload.trace import lengths_of, parse_lengths, parse_trace
from distserve_operator.placement.workload.workload import Workload

HEADER = "arrival_seconds,prompt_tokens,output_tokens"


def trace(*lines: str) -> str:
    return "\n".join([HEADER, *lines]) + "\n"


def test_arrivals_count_from_the_first_one() -> None:
    path = parse_trace(trace("1700000000.5,55,4", "1700000001.5,829,170", "1700000001.5,697,431").splitlines(), "t.csv")
    assert path.at(1.0).tolist() == [0, 1, 1]
    assert lengths_of(path).pairs == ((55, 4), (829, 170), (697, 431))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,2", r"line 3 of t.csv is .1,2., 2 fields: expected 3"),
        ("1", r"line 3 of t.csv is .1., 1 field: expected 3"),
        ("1,2,3,4", r"4 fields: expected 3"),
        ("1,x,3", r"line 3 of t.csv: prompt_tokens is 'x': expected a whole number from 1 to 10,000,000"),
        ("1,2,", r"output_tokens is '': expected a whole number"),
        ("1,0,3", r"prompt_tokens is '0'"),
        ("1,-5,3", r"prompt_tokens is '-5'"),
        ("1,5.0,3", r"prompt_tokens is '5.0'"),
        ("1,1_0,3", r"prompt_tokens is '1_0'"),
        ("1,٣,3", r"prompt_tokens is '\\u0663'"),
        ("1,99999999999999999999999,3", r"prompt_tokens is '99999999999999999999999'"),
        ("1,3,10000001", r"output_tokens is '10000001'"),
        ("NaN,2,3", r"arrival_seconds is 'NaN': expected seconds, 0 or more"),
        ("inf,2,3", r"arrival_seconds is 'inf'"),
        ("-1,2,3", r"arrival_seconds is '-1'"),
        ("noon,2,3", r"arrival_seconds is 'noon'"),
        ("0.25,2,3", r"line 3 of t.csv: arrival_seconds is 0.25, before the 0.5 of the line above: sort"),
    ],
)
def test_a_broken_line_is_named(line: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse_trace(trace("0.5,1,1", line, "9,1,1").splitlines(), "t.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv is empty: expected a first line arrival_seconds,prompt_tokens,output_tokens"),
        ("\n0,1,1\n", "t.csv is empty"),
        ("0.0,55,4\n", "t.csv starts with '0.0,55,4': expected a first line arrival_seconds"),
        ("arrival_seconds,prompt_tokens\n0,1\n", "expected a first line arrival_seconds,prompt_tokens,output_tokens"),
        (HEADER, "t.csv has no requests"),
        (trace("0,1,1", "", "1,1,1"), "line 3 of t.csv is empty"),
        (trace('0,1,"1'), "line 2 of t.csv"),
        (trace("0,1,1\0"), r"line 2 of t.csv"),
        (trace("0," + "9" * 200_000 + ",1"), "line 2 of t.csv is no line of a CSV file"),
    ],
)
def test_a_text_that_is_no_trace_is_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse_trace(text.splitlines(keepends=True), "t.csv")


def test_other_columns_and_another_order_do_not_matter() -> None:
    lines = ["output_tokens,user,arrival_seconds,prompt_tokens", "4,ann,0,55", "170,bob,0.4,829"]
    path = parse_trace(lines, "t.csv")
    assert (path.prompts.tolist(), path.outputs.tolist()) == ([55, 829], [4, 170])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_files_of_other_systems_are_read(tmp_path: Path, encoding: str, end: str) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(trace(" 0, 1 ,2", '"1","3","4"', "", "").replace("\n", end).encode(encoding))
    path = read_trace(file)
    assert (path.arrivals.tolist(), path.prompts.tolist(), path.outputs.tolist()) == ([0, 1], [1, 3], [2, 4])


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"none.csv cannot be read: No such file"):
        read_lengths(tmp_path / "none.csv")
    with pytest.raises(WorkloadError, match=r"cannot be read: Is a directory"):
        read_trace(tmp_path)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match=r"binary.csv is no text in UTF-8"):
        read_lengths(binary)


def test_requests_know_their_lines() -> None:
    """A quoted text may go on in other lines."""
    lines = ["user,arrival_seconds,prompt_tokens,output_tokens\n", '"ann\n', 'lee",0,55,4\n', "bob,1,2000,9\n"]
    assert lengths_of(parse_trace(lines, "t.csv")).lines == (2, 4)
    with pytest.raises(WorkloadError, match=r"the request of line 4 has 2000 \+ 9 tokens"):
        Workload(lengths_of(parse_trace(lines, "t.csv")), longest=2008)
    with pytest.raises(WorkloadError, match=r"the request of line 3 has 7 \+ 2 tokens"):
        Workload(parse_lengths(["prompt_tokens,output_tokens", "1,2", "7,2"], "l.csv"), longest=8)


def test_lengths_alone_need_no_arrivals() -> None:
    assert parse_lengths(["prompt_tokens,output_tokens", "1,2", "3,4"], "l.csv").pairs == ((1, 2), (3, 4))
    with pytest.raises(WorkloadError, match=r"l.csv has no requests"):
        parse_lengths(["prompt_tokens,output_tokens"], "l.csv")


def outcome(text: str) -> str:
    try:
        return f"t.csv: {len(parse_trace(text.splitlines(keepends=True), 't.csv'))} requests"
    except WorkloadError as error:
        return str(error)


@given(st.text())
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    assert "t.csv" in outcome(text)
    assert "t.csv" in outcome(HEADER + "\n" + text)
