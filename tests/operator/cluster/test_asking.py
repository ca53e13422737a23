"""What the operator makes of a gateway's answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.operator_process import free_port
from distserve_testing.played_gateway import NO_PAIR, PlayedGateway

from distserve_operator.cluster import asking
from distserve_operator.cluster.asking import GatewayClient, gateway_session
from distserve_operator.observed.answer import CannotServe, GatewayAnswer, NoAnswer, Serves
from distserve_operator.observed.gateway import GatewayPod
from distserve_proto.contract import GATEWAY_HTTP_PORT

UNUSED = "127.255.254.253"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For questions that are going to fail: it need not take long."""
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 0.3)


async def ask(address: str, model: str = "smollm2") -> GatewayAnswer:
    async with gateway_session() as session:
        return await GatewayClient(session).ask(GatewayPod("gateway", address), model)


@asynccontextmanager
async def answering(head: bytes, body: bytes = b"", *, endless: bool = False) -> AsyncIterator[str]:
    """A server that sends this to everybody and then waits; without `head` it never says a word."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n" + body if head else b"")
            while endless:
                writer.write(b" " * 65536)
                await writer.drain()
            await reader.read()
        except ConnectionError:
            pass  # the operator has heard enough
        finally:
            writer.close()

    with PlayedGateway().running() as reserved:
        address = reserved.address
    async with await asyncio.start_server(answer, address, GATEWAY_HTTP_PORT):
        yield address


def test_a_real_gateway_without_workers_says_why_it_cannot_serve(smollm2_path: Path, tmp_path: Path) -> None:
    """B17."""
    with PlayedGateway().running() as reserved:
        address = reserved.address
    nobody = [f"127.0.0.1:{free_port()}"]
    gateway = GatewayProcess(smollm2_path, nobody, tmp_path, host=address, port=GATEWAY_HTTP_PORT)
    try:
        assert gateway.http == f"{address}:{GATEWAY_HTTP_PORT}"
        answer = asyncio.run(ask(address, "test-model"))
        assert isinstance(answer, CannotServe)
        assert "0 prefill and 0 decode instances are ready" in answer.reason
        other = asyncio.run(ask(address, "another/model"))
        assert other == CannotServe("The model 'another/model' does not exist")
    finally:
        gateway.kill()


async def test_a_gateway_that_lists_the_model_serves() -> None:
    """B17."""
    with PlayedGateway().running() as gateway:
        assert await ask(gateway.address, "meta/llama-8b") == Serves()
        assert gateway.asked.get() == "/v1/models/meta%2Fllama-8b"


async def test_a_pair_that_comes_within_a_moment_is_waited_for() -> None:
    with PlayedGateway().running() as gateway:
        gateway.refusal = NO_PAIR
        answer = asyncio.create_task(ask(gateway.address))
        await asyncio.to_thread(gateway.asked.get)
        gateway.refusal = None
        assert await answer == Serves()


@pytest.mark.usefixtures("impatient")
async def test_a_gateway_that_goes_on_refusing_is_believed() -> None:
    with PlayedGateway().running() as gateway:
        gateway.refusal = NO_PAIR
        assert await ask(gateway.address) == CannotServe(NO_PAIR)


@pytest.mark.usefixtures("impatient")
async def test_nobody_there_is_no_answer_and_names_the_address() -> None:
    answer = await ask(UNUSED)
    assert isinstance(answer, NoAnswer)
    assert f"http://{UNUSED}:8000/v1/models/smollm2" in answer.why


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("head", "body", "endless"),
    [
        (b"", b"", False),
        (b"HTTP/1.1 200 OK", b"<html>", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6", b"<html>", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2", b"{}", False),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0", b"", False),
        (b"SSH-2.0-OpenSSH", b"", False),
    ],
    ids=["silence", "no end", "no json", "no model", "elsewhere", "no http"],
)
async def test_what_no_gateway_says_is_no_answer_and_ends(head: bytes, body: bytes, endless: bool) -> None:
    async with answering(head, body, endless=endless) as address:
        answer = await ask(address)
    assert isinstance(answer, NoAnswer)
    assert address in answer.why
