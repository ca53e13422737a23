"""Start, readiness, drain and end of the gateway process."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.hubs import REPOSITORY, played_hub
from distserve_testing.streaming import start_streams
from distserve_testing.workers import Pair

StartGateway = Callable[..., GatewayProcess]
BODY: dict[str, Any] = {
    "model": "test-model",
    "prompt": "hello",
    "max_tokens": 1500,
    "ignore_eos": True,
    "stream": True,
}
NOBODY = "127.0.0.1:1"


async def test_a_terminated_gateway_finishes_its_streams_and_exits_with_success(
    start_gateway: StartGateway, pair: Pair
) -> None:
    """B27."""
    gateway = start_gateway(*pair).wait_until_usable()
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        [running] = await start_streams(client, [BODY | {"max_tokens": 800}])
        gateway.terminate()
        assert (await running).ended_well
    assert gateway.exit_status() == 0
    with pytest.raises(httpx.ConnectError):
        gateway.get("/healthz")


async def test_streams_that_outlive_the_drain_end_with_a_typed_error(start_gateway: StartGateway, pair: Pair) -> None:
    """B3 and B27."""
    gateway = start_gateway(*pair, drain_seconds=1).wait_until_usable()
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        tasks = await start_streams(client, [BODY] * 4)
        gateway.terminate()
        streams = await asyncio.gather(*tasks)
    assert {(stream.error or {}).get("code") for stream in streams} == {"shutting_down"}
    assert gateway.exit_status() == 0


def test_a_gateway_without_workers_is_ready_and_alive(start_gateway: StartGateway) -> None:
    """B17: it can answer, with a 503 and a reason."""
    gateway = start_gateway(NOBODY).wait_until_usable(pairs=0)
    assert gateway.get("/healthz").text == "ok\n"
    assert gateway.get("/readyz").text == "ready\n"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("/nothing/here", "ModelNotFound: /nothing/here: no such file or folder"),
        ("ftp://somewhere/m", "ModelNotFound: ftp://somewhere/m: the scheme ftp is not known"),
        ("/" + "x" * 300, "ModelNotFound: /xxx"),
        ("/proc/self/mem", "ModelNotFound: /proc/self/mem: [Errno 5] Input/output error"),
        ("{empty}", "ModelInvalid: {empty}/tokenizer.json does not exist"),
        ("{damaged}", "ModelInvalid: {damaged}: tokenizer.json: "),
    ],
)
def test_a_model_that_cannot_be_read_ends_the_process_with_the_reason(
    start_gateway: StartGateway, tmp_path: Path, model: str, reason: str
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "tokenizer.json").write_text('{"half of')
    gateway = start_gateway(NOBODY, model=model.format(empty=empty, damaged=damaged))
    assert gateway.exit_status() == 1
    assert gateway.termination_log.read_text().startswith(reason.format(empty=empty, damaged=damaged))


def test_a_port_in_use_ends_the_process_with_the_reason(start_gateway: StartGateway) -> None:
    first = start_gateway(NOBODY)
    second = start_gateway(NOBODY, port=first.host_and_port[1])
    assert second.exit_status() == 1
    assert second.termination_log.read_text().startswith("ConfigurationInvalid: ")


def test_an_ipv6_address_is_announced_with_brackets(start_gateway: StartGateway) -> None:
    """B16."""
    gateway = start_gateway(NOBODY, host="::1")
    assert gateway.http.startswith("[::1]:")
    assert gateway.get("/healthz").status_code == 200


def test_a_gateway_downloads_no_weights(start_gateway: StartGateway, tiny_llama: Path, tmp_path: Path) -> None:
    """It needs the tokenizer and the configuration only, and runs in a small pod."""
    with played_hub(tiny_llama) as hub:
        hub.open.set()
        env = os.environ | hub.environment(tmp_path)
        gateway = start_gateway(NOBODY, model=REPOSITORY, env=env).wait_until_usable(pairs=0)
    assert gateway.get("/readyz").status_code == 200
    assert {"tokenizer.json", "config.json", "chat_template.jinja"} <= set(hub.asked)
    assert not any(name.endswith(".safetensors") for name in hub.asked)
