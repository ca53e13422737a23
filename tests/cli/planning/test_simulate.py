"""`distserve simulate` from the command line: one placement at several rates, on a trace, and as a figure."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from distserve_cli.__main__ import main

QUESTION = ["--model", "opt-13b", "--gpu", "A100-80GB", "--ttft-ms", "250", "--tpot-ms", "100", "--requests", "400"]
LENGTHS = ["--lengths", "fixed:512,64"]
SPLIT = ["--prefill", "1,1,2", "--decode", "1,1,1"]
BOTH = ["--colocated", "1,1,1"]
HEADER = "arrival_seconds,prompt_tokens,output_tokens"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *QUESTION, *arguments])


def rows_of(*arguments: str) -> list[dict[str, Any]]:
    done = run(*arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout, parse_constant=pytest.fail)
    return found


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.csv"
    file.write_text("\n".join([HEADER, *(f"{5 * number},512,64" for number in range(20))]))
    return file


@pytest.mark.parametrize("placement", [SPLIT, BOTH, [*BOTH, "--chunk-tokens", "512"]])
def test_there_is_a_row_for_each_rate_and_it_gets_worse(placement: list[str]) -> None:
    rows = rows_of(*LENGTHS, *placement, "--rates", "0.2,40")
    assert [row["rate"] for row in rows] == [0.2, 40]
    assert rows[0]["attainment"] == 100
    assert rows[1]["attainment"] < 50
    for key in ("ttft", "tpot", "gap"):
        assert rows[0][key]["p50"] <= rows[0][key]["p90"] <= rows[0][key]["p99"]
    assert rows == rows_of(*LENGTHS, *placement, "--rates", "0.2,40")


def test_a_rate_that_a_fleet_cannot_keep_up_is_told(trace: Path) -> None:
    """All requests are served well in a run that is short beside the longest of them."""
    other = ["--model", "qwen3-14b", "--gpu", "H200", "--ttft-ms", "2000", "--colocated", "1,1,4"]
    options = [*other, "--lengths", "lognormal:60,2,600,1.5"]
    slow, fast = rows_of(*options, "--rates", "40,60")
    assert (slow["attainment"], fast["attainment"]) == (100, 100)
    assert (slow["steady"], fast["steady"]) == (True, False)
    table = run(*options, "--rates", "40,60").stdout
    assert "not steady at 60: the longer the run, the fewer requests meet the targets" in table
    assert "not steady" not in run(*options, "--rates", "40").stdout
    assert [row["steady"] for row in rows_of(*BOTH, "--trace", str(trace))] == [None]
    assert [row["steady"] for row in rows_of(*LENGTHS, "--prefill", "1,1,1", "--rates", "1")] == [None]


def test_csv_and_table_have_the_same_figures() -> None:
    (row,) = rows_of(*LENGTHS, *SPLIT, "--rates", "2")
    (line,) = csv.DictReader(run(*LENGTHS, *SPLIT, "--rates", "2", "-o", "csv").stdout.splitlines())
    assert float(line["attainment"]) == row["attainment"]
    assert float(line["ttft_p90"]) == row["ttft"]["p90"]
    table = run(*LENGTHS, *SPLIT, "--rates", "2").stdout
    assert table.startswith("2xTP1 -> 1xTP1: OPT-13B on A100-80GB")
    assert f"{row['ttft']['p90']:.4g}" in table


def test_a_trace_has_one_row(trace: Path) -> None:
    (row,) = rows_of(*SPLIT, "--trace", str(trace))
    assert row["attainment"] == 100
    (alone,) = rows_of(*LENGTHS, *SPLIT, "--rates", "0.001")
    assert row["ttft"]["p50"] == pytest.approx(alone["ttft"]["p50"])
    assert row["tpot"]["p50"] == pytest.approx(alone["tpot"]["p50"])


def test_a_trace_of_one_moment_has_no_rate(trace: Path, tmp_path: Path) -> None:
    trace.write_text(f"{HEADER}\n3,512,64\n")
    figure = tmp_path / "figure.svg"
    (row,) = rows_of(*SPLIT, "--trace", str(trace), "--plot", str(figure))
    assert (row["rate"], row["attainment"]) == (None, 100)
    assert figure.exists()
    assert run(*SPLIT, "--trace", str(trace)).stdout.splitlines()[2].split()[:2] == ["-", "100"]


@pytest.mark.parametrize("load", ["rates", "trace"])
def test_both_figures_are_drawn(load: str, trace: Path, tmp_path: Path) -> None:
    figure = tmp_path / "figure.png"
    given = ["--rates", "1,8", *LENGTHS] if load == "rates" else ["--trace", str(trace)]
    done = run(*SPLIT, *given, "--plot", str(figure))
    assert done.exit_code == 0, done.output
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_phase_can_be_looked_at_alone() -> None:
    """Paper, figure 1: either phase alone carries more than both together."""
    (prefill,) = rows_of(*LENGTHS, "--prefill", "1,1,1", "--rates", "3")
    (decode,) = rows_of(*LENGTHS, "--decode", "1,1,1", "--rates", "3")
    (both,) = rows_of(*LENGTHS, *BOTH, "--rates", "3")
    assert prefill["ttft"]["p90"] < both["ttft"]["p90"]
    assert decode["tpot"]["p90"] < both["tpot"]["p90"]


@pytest.mark.parametrize(
    ("phase", "load", "known", "missing"),
    [
        ("--prefill", LENGTHS, ["ttft"], ["tpot", "gap"]),
        ("--decode", LENGTHS, ["tpot", "gap"], ["ttft"]),
        ("--colocated", ["--lengths", "fixed:512,1"], ["ttft"], ["tpot", "gap"]),
    ],
)
def test_a_time_that_no_request_has_is_no_perfect_one(
    phase: str, load: list[str], known: list[str], missing: list[str]
) -> None:
    arguments = [*load, phase, "1,1,1", "--rates", "1"]
    (row,) = rows_of(*arguments)
    assert [row[latency] for latency in missing] == [None] * len(missing)
    assert all(row[latency]["p50"] > 0 for latency in known)
    (line,) = csv.DictReader(run(*arguments, "-o", "csv").stdout.splitlines())
    assert [line[f"{latency}_p90"] for latency in missing] == [""] * len(missing)
    shown = run(*arguments).stdout.splitlines()[2].split()
    assert shown.count("-") == 3 * len(missing)


def test_kv_takes_the_link_that_the_affinity_allows() -> None:
    long = ["--lengths", "fixed:2000,8", *SPLIT, "--rates", "0.1", "--link-gbps", "1"]
    low, high = (rows_of(*long, "--affinity", affinity)[0] for affinity in ("Low", "High"))
    assert low["tpot"]["p50"] < high["tpot"]["p50"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*LENGTHS, *SPLIT], "give either --rates R,R,... or --trace FILE.csv"),
        ([*LENGTHS, *SPLIT, "--rates", "1", "--trace", "t.csv"], "give either --rates R,R,... or --trace FILE.csv"),
        ([*SPLIT, "--rates", "1"], "--lengths is missing"),
        ([*LENGTHS, "--rates", "1"], "give --prefill and --decode (or one of them), or --colocated alone"),
        (
            [*LENGTHS, *SPLIT, *BOTH, "--rates", "1"],
            "give --prefill and --decode (or one of them), or --colocated alone",
        ),
        ([*LENGTHS, *SPLIT, "--chunk-tokens", "512", "--rates", "1"], "--chunk-tokens 512 is for --colocated only"),
        ([*LENGTHS, "--colocated", "1,1", "--rates", "1"], "'1,1' has 2 numbers: give tp,pp,replicas such as 2,1,1"),
        ([*LENGTHS, "--colocated", "1,0,1", "--rates", "1"], "'0' is no tp, pp or replicas"),
        (
            [*LENGTHS, "--colocated", "7,1,1", "--rates", "1"],
            "1xTP7 colocated cannot be: TP7: the 40 heads of OPT-13B cannot be shared out to 7 devices",
        ),
        (
            [*LENGTHS, "--colocated", "5,1,1", "--rates", "1"],
            "1xTP5 colocated cannot be: TP5: there is no latency for tp 5, only for tp 1, 2",
        ),
        (
            [*LENGTHS, "--colocated", "1,1000,1", "--rates", "1"],
            "1xTP1PP1000 colocated cannot be: TP1PP1000: OPT-13B has no more than 40 layers",
        ),
        (
            [*LENGTHS, "--colocated", "1,1,9", "--nodes", "1", "--rates", "1"],
            "9xTP1 takes 9 devices and does not fit 1 node",
        ),
        (
            [*LENGTHS, *SPLIT, "--gpus-per-node", "2", "--affinity", "Low", "--rates", "1"],
            "with affinity Low: raise --nodes",
        ),
        ([*LENGTHS, *SPLIT, "--rates", "1,0"], "'--rates': '0' is no rate in requests per second"),
        ([*LENGTHS, *SPLIT, "--rates", ""], "'--rates': '' is no rate"),
        (
            [*LENGTHS, *SPLIT, "--rates", "1", "--plot", "figure.doc"],
            "--plot figure.doc: give a file that ends in .png",
        ),
        ([*SPLIT, "--trace", "/none.csv"], "--trace: /none.csv cannot be read: No such file"),
    ],
)
def test_bad_input_is_named_with_its_value_and_what_would_do(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("9,5,x", "--trace: line 3 of trace.csv: output_tokens is 'x': expected a whole number"),
        ("nan,5,5", "line 3 of trace.csv: arrival_seconds is 'nan'"),
        ("9,2000,64", "the request of line 3 has 2000 + 64 tokens, more than the model's context of 2048"),
    ],
)
def test_a_broken_line_of_a_trace_is_named(line: str, message: str, trace: Path) -> None:
    trace.write_text(f"{HEADER}\n8,5,5\n{line}\n")
    done = run(*SPLIT, "--trace", str(trace))
    assert done.exit_code == 2
    assert message in done.stderr
