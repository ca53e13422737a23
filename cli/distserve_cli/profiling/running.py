"""Carries out `distserve profile`: measures, fits, shows and writes."""

import datetime
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from distserve_cli.profiling import measuring
from distserve_cli.profiling.laws import Measured, profile_of
from distserve_cli.profiling.rendering import profile_json
from distserve_cli.profiling.subject import Subject, identify
from distserve_cli.profiling.tables import print_profile
from distserve_cli.profiling.target import Target
from distserve_operator.placement.latency.profile import Profile
from distserve_operator.placement.latency.profile_writing import write_config_map, write_profile
from distserve_operator.placement.model import WeightType
from distserve_worker.measuring.messages import Progress as Told


def run_profiling(model: str, weight_type: WeightType, flags: Sequence[str], target: Target, form: str) -> None:
    """Show the profile as `form`, table or json, and write it to `target`.

    Raises:
        BadInput: nothing can be measured with this input.
        ClickException: the measuring process died, no law can be fitted, or the one that was written fits badly.
    """
    subject = identify(model, weight_type)
    with _watching() as watch:
        measured = measuring.measure(model, ["--dtype", weight_type, *flags], watch)
    profile = _fitted(subject, measured)
    shown = profile_json(profile, measured)
    if form == "json":
        click.echo(json.dumps(shown, indent=2, allow_nan=False), err=target.takes_standard_output)
    else:
        print_profile(shown, on_error_output=target.takes_standard_output)
    _write(profile, target)
    if form == "table":
        click.echo(_next(subject, profile, target), err=target.takes_standard_output)
    if shown["problems"]:
        raise click.ClickException(
            "the fit is poor, plans refuse it without --allow-poor-fit: measure again on a machine that does nothing "
            "else, or for more --seconds"
        )


def _fitted(subject: Subject, measured: Measured) -> Profile:
    day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    try:
        return profile_of(subject, measured, day)
    except ValueError as error:
        raise click.ClickException(f"no law fits the steps: {error}") from error


def _write(profile: Profile, target: Target) -> None:
    if target.config_map is None:
        text = write_profile(profile)
    else:
        text = write_config_map(profile, target.config_map, target.namespace)
    if target.takes_standard_output:
        click.echo(text, nl=False)
    if target.file is not None:
        try:
            target.file.write_text(text, "utf-8")
        except OSError as error:
            raise click.ClickException(f"--output {target.file}: cannot be written: {error.strerror}") from error


def _next(subject: Subject, profile: Profile, target: Target) -> str:
    if target.file is None:
        return "" if target.config_map is not None else "Nothing is written: give --output FILE or --config-map NAME."
    if subject.planned_as is None:
        return f"Written to {target.file}. Plans know no model {subject.name}: they need its config.json."
    words = ["--model", subject.planned_as, "--dtype", profile.weight_type, "--gpu", profile.device]
    return f"Written to {target.file}, for `distserve plan {shlex.join([*words, '--profile', str(target.file)])} …`"


@contextmanager
def _watching() -> Iterator[Callable[[Told], None]]:
    """A bar on standard error, for eyes only."""
    columns = (TextColumn("measuring"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("starting", total=1.0)
        yield lambda told: progress.update(task, completed=told.share, description=told.doing)
