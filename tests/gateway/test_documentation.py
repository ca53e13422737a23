"""docs/gateway.md names every field, flag, metric and error code that there is."""

import ast
import re
from pathlib import Path

import pytest

from distserve_proto.contract import Role
from distserve_worker.gateway.api.bodies import ChatBody, CompletionBody
from distserve_worker.gateway.api.fields import HARMLESS
from distserve_worker.gateway.failures import Failure
from distserve_worker.gateway.metrics import Metrics

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/gateway.md").read_text()
PACKAGE = ROOT / "worker/distserve_worker/gateway"


def _metric_names() -> set[str]:
    def nothing(*_: Role) -> float:
        return 0

    families = Metrics(nothing, nothing).registry.collect()
    return {f"{family.name}_total" if family.type == "counter" else family.name for family in families}


def _strings_of_the_package() -> set[str]:
    trees = (ast.parse(file.read_text()) for file in PACKAGE.rglob("*.py"))
    constants = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def _errors_of_the_page() -> str:
    return PAGE.partition("## Errors")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", sorted(_metric_names()))
def test_every_metric_is_documented(name: str) -> None:
    assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize("name", sorted({*ChatBody.model_fields, *CompletionBody.model_fields, *HARMLESS}))
def test_every_field_is_documented(name: str) -> None:
    assert re.search(rf"`{name}(\.\w+)?`", PAGE)


@pytest.mark.parametrize("reason", list(Failure))
def test_every_reason_of_a_retry_is_documented(reason: Failure) -> None:
    assert f"`{reason}`" in PAGE


def test_every_documented_error_code_exists() -> None:
    rows = [line.split("|")[2] for line in _errors_of_the_page().splitlines() if line.startswith("| ")]
    documented = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert documented <= _strings_of_the_package()


@pytest.mark.parametrize("module", sorted(file.stem for file in PACKAGE.glob("*.py") if not file.stem.startswith("_")))
def test_every_module_has_its_sentence(module: str) -> None:
    assert f"`{module}`" in PAGE.partition("## Modules")[2]
