"""The commands `distserve plan` and `distserve simulate`.

What they do is imported when they run: it needs numpy and compiled code, for which `distserve --help` should not wait.
"""

import pathlib
from typing import TextIO

import click

from distserve_cli.planning import quantities
from distserve_cli.planning.errors import BadInput
from distserve_cli.planning.options import search_options, shared_options
from distserve_cli.planning.parameters import POOL, RATES, Whole
from distserve_cli.planning.resource import parse_resource
from distserve_cli.planning.wishes import Wishes, gather, missing

FILE = click.Path(dir_okay=False, path_type=pathlib.Path)


@click.command("plan")
@shared_options
@search_options
@click.option(
    "--top", type=Whole(quantities.COUNT), help="Candidates to measure and list; by default those that say why."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def plan_command(filename: TextIO | None, top: int | None, output: str, **options: object) -> None:
    """Find the placement: with --rate the fewest devices that hold it, else the best goodput per device."""
    wishes = _wishes(filename, options)
    if wishes.placed:
        raise BadInput(
            f"{wishes.origins['placed']}.type is Manual, whose shape is given: write Auto for a search, or see what "
            "the shape does by distserve simulate -f with --prefill and --decode, or --colocated"
        )
    if wishes.lengths is None:
        raise missing("lengths", "spec.workload", wishes.resource)
    from distserve_cli.planning.searching import run_search

    run_search(wishes, top, output)


@click.command("simulate")
@shared_options
@click.option("--prefill", type=POOL, metavar="TP,PP,REPLICAS", help="Instances that read prompts.")
@click.option("--decode", type=POOL, metavar="TP,PP,REPLICAS", help="Instances that produce tokens.")
@click.option("--colocated", type=POOL, metavar="TP,PP,REPLICAS", help="Instances that do both, instead.")
@click.option("--chunk-tokens", type=Whole(quantities.TOKENS), help="Chunked prefill, so many tokens a step.")
@click.option("--rates", type=RATES, metavar="R,R,...", help="Requests per second.")
@click.option("--trace", type=FILE, help="CSV file arrival_seconds,prompt_tokens,output_tokens, simulated as it is.")
@click.option("--plot", type=FILE, help="Draw attainment against rate and against the scale of the targets.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
def simulate_command(
    filename: TextIO | None,
    prefill: tuple[float, ...] | None,
    decode: tuple[float, ...] | None,
    colocated: tuple[float, ...] | None,
    chunk_tokens: int | None,
    rates: tuple[float, ...] | None,
    trace: pathlib.Path | None,
    plot: pathlib.Path | None,
    output: str,
    **options: object,
) -> None:
    """Simulate one placement: attainment and latencies at each of --rates, or on a trace."""
    wishes = _wishes(filename, options)
    if (rates is None) == (trace is None):
        raise BadInput("give either --rates R,R,... or --trace FILE.csv")
    if trace is None and wishes.lengths is None:
        raise missing("lengths", "spec.workload", wishes.resource)
    if (prefill is None and decode is None) == (colocated is None):
        raise BadInput("give --prefill and --decode (or one of them), or --colocated alone, each TP,PP,REPLICAS")
    if chunk_tokens is not None and colocated is None:
        raise BadInput(f"--chunk-tokens {chunk_tokens} is for --colocated only: prefill instances batch whole prompts")
    from distserve_cli.planning.simulating import Counts, run_simulation

    run_simulation(wishes, Counts(prefill, decode, colocated, chunk_tokens), rates, trace, plot, output)


def _wishes(file: TextIO | None, options: dict[str, object]) -> Wishes:
    if file is None:
        return gather(options, {}, {})
    name = pathlib.Path(file.name).name
    try:
        text = file.read()
    except UnicodeDecodeError as error:
        raise BadInput(f"-f {name} is no text in UTF-8: {error.reason} at byte {error.start}") from error
    return gather(options, *parse_resource(text, name))
