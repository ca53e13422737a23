"""The demo's question: the answer is printed as it comes, and whatever else comes is a step that failed."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from distserve_cli.demo.conversation import converse
from distserve_cli.demo.narration import StepFailed

USAGE: dict[str, Any] = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
MEASURED: dict[str, Any] = {"stages": {"prefill_queue": 0.001, "decode": 0.5}, "kv_bytes": 4096, "transport": "tcp"}


@contextmanager
def server(*lines: str, status: int = 200) -> Iterator[int]:
    """The port of a server that answers one request with these lines."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write("".join(f"{line}\n\n" for line in lines).encode())

        def log_message(self, *_: Any) -> None:
            """Nothing: the tests' output is read by people."""

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.handle_request)
        thread.start()
        try:
            yield listening.server_port
        finally:
            thread.join()


def text(content: str) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': content}}]})}"


def summary(**fields: Any) -> str:
    return f"data: {json.dumps({'choices': [], 'usage': USAGE, 'distserve': MEASURED} | fields)}"


def test_the_answer_its_stages_and_the_kv_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with server(text("Par"), ": ping", text("is."), summary(), "data: [DONE]") as port:
        converse(port, "m", "Where?", "the logs")
    printed = capsys.readouterr().out
    assert "assistant: Paris.\n" in printed
    assert "7 prompt tokens, 2 completion tokens" in printed
    assert "prefill queue" in printed
    assert "4,096 bytes over tcp" in printed


def test_a_request_without_a_decode_leg_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with server(summary(distserve=MEASURED | {"kv_bytes": 0, "transport": None}), "data: [DONE]") as port:
        converse(port, "m", "Where?", "the logs")
    assert "it ended after the first token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([text("a"), "data: [DONE]"], "ended without usage"),
        (["data: [DONE]"], "ended without usage"),
        ([text("a"), summary(distserve=None), "data: [DONE]"], "ended without usage"),
        ([text("a"), summary(usage={}), "data: [DONE]"], "ended without usage"),
        ([text("a"), summary()], "broke off before"),
        ([], "broke off before"),
        ([text("a"), 'data: {"error": {"message": "engine failed"}}'], "engine failed"),
        (["data: {half"], "no chunk of a chat completion: {half"),
        (["data: 7"], "no chunk"),
        (['data: {"choices": [{"text": "a"}]}'], "no chunk"),
    ],
)
def test_a_stream_that_is_no_answer_is_a_failed_step_that_says_where_to_look(lines: list[str], message: str) -> None:
    with server(*lines) as port, pytest.raises(StepFailed, match=message) as caught:
        converse(port, "m", "Where?", "the logs")
    assert "look at: the logs" in caught.value.message


def test_a_refusal_is_shown_in_the_servers_words() -> None:
    refusal = '{"error": "no usable pair"}'
    with server(refusal, status=503) as port, pytest.raises(StepFailed, match=r"HTTP 503: .*no usable pair"):
        converse(port, "m", "Where?", "the logs")


def test_a_server_that_is_not_there_is_named() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_port
    with pytest.raises(StepFailed, match=rf"no answer from http://127\.0\.0\.1:{port}"):
        converse(port, "m", "Where?", "the logs")
