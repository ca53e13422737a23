"""The command line."""

import pytest

from distserve_worker.gateway.settings import parse_settings

MODEL = ["--served-name", "m", "--model", "/m"]


def test_workers_can_be_named() -> None:
    settings = parse_settings([*MODEL, "--worker", "127.0.0.1:9000", "--worker", "[fd00::1]:9000"])
    assert settings.workers == ["127.0.0.1:9000", "[fd00::1]:9000"]


def test_a_deployment_can_be_watched() -> None:
    settings = parse_settings([*MODEL, "--deployment", "chat", "--namespace", "team"])
    assert (settings.deployment, settings.namespace, settings.port) == ("chat", "team", 8000)


@pytest.mark.parametrize(("flags", "isolate"), [([], False), (["--isolate-prefixes"], True)])
def test_prefixes_are_shared_unless_told_otherwise(flags: list[str], isolate: bool) -> None:
    assert parse_settings([*MODEL, "--worker", "a:1", *flags]).isolate_prefixes is isolate


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([], "either --deployment or at least one --worker"),
        (["--worker", "a:1", "--deployment", "d"], "either --deployment or at least one --worker"),
        (["--worker", "a"], "argument --worker: address 'a'"),
        (["--worker", "a:1", "--port", "70000"], "argument --port: 70000 is not in 0 to 65535"),
        (["--worker", "a:1", "--max-requests", "0"], "argument --max-requests: 0 is not in 1"),
        (["--worker", "a:1", "--max-body-bytes", "64", "--max-bodies-bytes", "63"], "--max-bodies-bytes is smaller"),
        (["--worker", "a:1", "--write-timeout", "nan"], "argument --write-timeout: nan is not in"),
    ],
)
def test_a_wrong_flag_is_named(flags: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_settings([*MODEL, *flags])
    assert reason in capsys.readouterr().err
