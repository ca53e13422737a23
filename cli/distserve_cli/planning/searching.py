"""Carries out `distserve plan`: asks, and prints the answer."""

import json
from dataclasses import replace

import click
import yaml

from distserve_cli.planning.answering import answer
from distserve_cli.planning.asking import question_of
from distserve_cli.planning.rendering import answer_json
from distserve_cli.planning.tables import print_plan
from distserve_cli.planning.wishes import Wishes


def run_search(wishes: Wishes, top: int | None, output: str) -> None:
    """Print the plan as `output`: table, json or yaml, with `top` candidates. Raises BadInput."""
    plan = answer_json(answer(replace(question_of(wishes), listed=top)), top)
    match output:
        case "json":
            click.echo(json.dumps(plan, indent=2, allow_nan=False))
        case "yaml":
            click.echo(yaml.safe_dump(plan, sort_keys=False, allow_unicode=True), nl=False)
        case _:
            print_plan(plan, {"ttft": wishes.ttft_ms, "tpot": wishes.tpot_ms, "gap": wishes.max_gap_ms})
