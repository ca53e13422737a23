"""The command `distserve profile`. What it does is imported when it runs: `distserve --help` should not wait for it."""

import pathlib
from typing import Final

import click

from distserve_cli.planning.parameters import Number, Whole
from distserve_cli.planning.quantities import Quantity
from distserve_cli.profiling.target import Target, checked
from distserve_operator.placement.model import WeightType
from distserve_worker.measuring.arguments import AUTO, DEVICES, DTYPES

SECONDS: Final = Quantity("number of seconds", 1, 86_400)
THREADS: Final = Quantity("number of threads", 1, 1024, whole=True)
TEMPERATURE: Final = Quantity("temperature", 0, 2)
DEVICE: Final = click.Choice([*DEVICES, AUTO])


@click.command("profile")
@click.option("--model", required=True, help="GGUF file, folder of Hugging Face, or URI of weights on this machine.")
@click.option("--dtype", type=click.Choice(DTYPES), default="FP32", show_default=True, help="Of weights and KV cache.")
@click.option("--device", type=DEVICE, default=AUTO, show_default=True, help="To measure on; auto is the CPU.")
@click.option("--threads", type=Whole(THREADS), default=1, show_default=True, help="CPU cores of one device.")
@click.option("--seconds", type=Number(SECONDS), default=60, show_default=True, help="To measure for; more is finer.")
@click.option("--temperature", type=Number(TEMPERATURE), default=1, show_default=True, help="Of requests; 0 is greedy.")
@click.option("--output", "file", type=click.Path(path_type=pathlib.Path), metavar="FILE", help="Write the profile.")
@click.option("--config-map", metavar="NAME", help="Write a ConfigMap, to standard output unless --output is given.")
@click.option("--namespace", help="Of the ConfigMap.  [default: where it is applied]")
@click.option("-o", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def profile_command(
    model: str,
    dtype: WeightType,
    device: str,
    threads: int,
    seconds: float,
    temperature: float,
    file: pathlib.Path | None,
    config_map: str | None,
    namespace: str | None,
    form: str,
) -> None:
    """Measure how long the engine's steps take on this machine, for `distserve plan --profile`."""
    target = checked(Target(file, config_map, namespace))
    flags = {"device": device, "threads": threads, "seconds": seconds, "temperature": temperature}
    from distserve_cli.profiling.running import run_profiling

    run_profiling(model, dtype, [f"--{name}={value}" for name, value in flags.items()], target, form)
