"""Options of `distserve plan` and `distserve simulate`; absent ones are None, so that a resource can fill them."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from distserve_cli.planning import quantities
from distserve_cli.planning.parameters import Number, Whole
from distserve_cli.planning.quantities import Quantity

Command = TypeVar("Command", bound=Callable[..., object])
Option = Callable[[Any], Any]


def _choice(name: str, choices: tuple[str, ...], text: str) -> Option:
    kind = click.Choice(choices, case_sensitive=False)
    return click.option(name, type=kind, metavar="|".join(choices), help=text)


def _number(name: str, quantity: Quantity, text: str) -> Option:
    return click.option(name, type=Whole(quantity) if quantity.whole else Number(quantity), help=text)


SHARED: Final = (
    click.option("-f", "--filename", type=click.File(encoding="utf-8"), help="A DistServeDeployment; options win."),
    click.option("--model", help="A known model, a URI of weights, or a config.json of Hugging Face."),
    _choice("--dtype", ("FP32", "FP16", "BF16", "INT8"), "Type of the weights.  [default: as published]"),
    _number("--max-model-length", quantities.TOKENS, "Most tokens of a request.  [default: the model's context]"),
    click.option("--gpu", help="Device: A100-80GB, H100-80GB, H200, L40S or CPU."),
    _number("--nodes", quantities.NODES, "Nodes with free devices.  [default: 1, or what --max-devices needs]"),
    _number("--gpus-per-node", quantities.NODE_DEVICES, "Free devices of each.  [default: 8]"),
    _choice("--affinity", ("Low", "High", "Auto"), "KV stays inside nodes, goes anywhere, or either.  [default: Auto]"),
    _number("--link-gbps", quantities.GIGABITS, "Gbit/s between two nodes.  [default: the device's]"),
    _number("--ttft-ms", quantities.MILLISECONDS, "Target: time to the first token."),
    _number("--tpot-ms", quantities.MILLISECONDS, "Target: mean time per output token after it."),
    _number("--max-gap-ms", quantities.MILLISECONDS, "Target: longest wait between two tokens.  [default: none]"),
    _number("--attainment", quantities.PERCENT, "Percent of requests that must meet all targets.  [default: 90]"),
    click.option("--lengths", help="FILE.csv, sharegpt, fixed:IN,OUT or lognormal:MEAN_IN,CV_IN,MEAN_OUT,CV_OUT."),
    click.option("--arrivals", help="poisson, gamma:CV or fixed.  [default: poisson]"),
    _choice("--engine", ("distserve", "vllm"), "Whose shipped latencies.  [default: distserve]"),
    click.option("--profile", type=click.Path(dir_okay=False), help="Latencies measured by `distserve profile`."),
    click.option("--allow-poor-fit", is_flag=True, help="Take a profile whose fit makes no sense."),
    _number("--requests", quantities.REQUESTS, "Requests of a simulation.  [default: 2000, finite window: 300]"),
    click.option(
        "--finite-window", is_flag=True, help="Judge all requests from an empty system, as published numbers."
    ),
    _number("--seed", quantities.SEED, "Of arrivals and lengths.  [default: 0]"),
)

SEARCH: Final = (
    _number("--rate", quantities.RATE, "Requests per second to hold with the fewest devices.  [default: none]"),
    _number("--max-devices", quantities.DEVICES, "Most devices to take.  [default: all]"),
    _choice("--only", ("disaggregated", "colocated"), "Leave the other kind out."),
    _choice("--rule", ("joint", "paper"), "Shapes and counts together, or the paper's rule.  [default: joint]"),
)


def shared_options(command: Command) -> Command:
    """What is placed, on what, for which targets and load."""
    return _apply(command, SHARED)


def search_options(command: Command) -> Command:
    """How a placement is searched."""
    return _apply(command, SEARCH)


def _apply(command: Command, options: tuple[Option, ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
