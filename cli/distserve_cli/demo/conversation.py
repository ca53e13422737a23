"""Sends one streamed chat completion and prints the tokens as they come, then what the request went through."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import click

from distserve_cli.demo.narration import StepFailed, say

TIMEOUT_SECONDS = 60


def converse(port: int, model: str, question: str, look: str) -> None:
    """Ask over http://127.0.0.1:`port` and print the answer.

    Raises:
        StepFailed: the server refused, the stream broke off, or what came is no answer of our gateway.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": 64,
    }
    say(f"user: {question}")
    click.echo("  assistant: ", nl=False)
    summary: dict[str, Any] = {}
    try:
        for chunk in _events(port, body, look):
            if "error" in chunk:
                raise StepFailed(f"the stream ended with {chunk['error']}", look)
            for choice in chunk.get("choices", []):
                click.echo(choice["delta"].get("content") or "", nl=False)
            summary = chunk if chunk.get("usage") else summary
    finally:
        click.echo()
    _print_summary(summary, look)


def _events(port: int, body: dict[str, Any], look: str) -> Iterator[dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request(
            "POST", "/v1/chat/completions", body=json.dumps(body), headers={"Content-Type": "application/json"}
        )
        with connection.getresponse() as response:
            yield from _chunks(response, look)
    except (OSError, http.client.HTTPException) as error:
        raise StepFailed(f"no answer from http://127.0.0.1:{port}: {error!r}", look) from error
    finally:
        connection.close()


def _chunks(response: http.client.HTTPResponse, look: str) -> Iterator[dict[str, Any]]:
    if response.status != http.client.OK:
        raise StepFailed(f"HTTP {response.status}: {response.read().decode(errors='replace')}", look)
    for line in response:
        data = line.decode(errors="replace").strip().removeprefix("data: ")
        if data == "[DONE]":
            return
        if data and not data.startswith(":"):
            yield _parse(data, look)
    raise StepFailed("the stream broke off before [DONE]", look)


def _parse(data: str, look: str) -> dict[str, Any]:
    try:
        chunk = json.loads(data)
    except ValueError:
        chunk = None
    match chunk:
        case {"choices": [*choices]} if all(isinstance(each, dict) and "delta" in each for each in choices):
            return dict(chunk)
        case {"error": _}:
            return dict(chunk)
    raise StepFailed(f"the stream holds what is no chunk of a chat completion: {data[:200]}", look)


def _print_summary(chunk: dict[str, Any], look: str) -> None:
    match chunk:
        case {
            "usage": {"prompt_tokens": int(prompt), "completion_tokens": int(completion)},
            "distserve": {"stages": dict(stages), "kv_bytes": int(kv_bytes), "transport": transport},
        }:
            say(f"{prompt} prompt tokens, {completion} completion tokens")
            for stage, seconds in stages.items():
                say(f"{stage.replace('_', ' '):<14} {seconds * 1000:9.1f} ms")
            pulled = f"{kv_bytes:,} bytes over {transport}" if transport else "nothing: it ended after the first token"
            say(f"{'KV pulled':<14} {pulled}")
        case _:
            raise StepFailed("the stream ended without usage and stage times", look)
