"""Rows of a CSV text with a header, each with the number of its line."""

import csv
from collections.abc import Iterable, Iterator
from typing import Final

from distserve_operator.placement.workload.errors import WorkloadError

MOST_ROWS: Final = 1_000_000
MOST_SHOWN: Final = 60


def rows(lines: Iterable[str], name: str, columns: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line number and the fields of `columns` of each row; other columns are left out, empty lines at the end too.

    Raises:
        WorkloadError: for the first line that is not such a row, with its number.
    """
    expected = ",".join(columns)
    records = _records(lines, name)
    header = next(records, (0, []))[1]
    if not set(columns) <= set(header):
        found = f"starts with {shown(','.join(header))}" if header else "is empty"
        raise WorkloadError(f"{name} {found}: expected a first line {expected}")
    places = [header.index(column) for column in columns]
    empty = 0
    for line, row in records:
        if not any(row):
            empty = empty or line
        elif empty:
            raise WorkloadError(f"line {empty} of {name} is empty: expected {expected}")
        elif len(row) != len(header):
            count = f"{len(row)} field{'s' * (len(row) > 1)}"
            raise WorkloadError(f"line {line} of {name} is {shown(','.join(row))}, {count}: expected {len(header)}")
        else:
            yield line, tuple(row[place] for place in places)


def shown(text: str) -> str:
    """A value as it is quoted in a message: readable, and not longer than a line."""
    return ascii(text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "...")


def _records(lines: Iterable[str], name: str) -> Iterator[tuple[int, list[str]]]:
    """Fields without surrounding blanks, and the line on which they begin: a quoted one may go on in other lines."""
    reader = csv.reader(lines, strict=True)
    line = 1
    try:
        for fields in reader:
            if line > MOST_ROWS + 1:
                raise WorkloadError(f"{name} has more than {MOST_ROWS:,} rows: take a part of it")
            yield line, [field.strip() for field in fields]
            line = reader.line_num + 1
    except csv.Error as error:
        raise WorkloadError(f"line {line} of {name} is no line of a CSV file: {error}") from error
