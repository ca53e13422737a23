"""Sends one streamed chat completion and prints the tokens as they come, then what the request went through."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import click

from distserve_cli.demo.narration import StepFailed, say

TIMEOUT_SECONDS = 60


def converse(port: int, model: str, question: str, look: str) -> None:
    """Ask over http://127.0.0.1:`port` and print the answer; raises StepFailed with the server's own error."""
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
    for chunk in _events(port, body, look):
        if "error" in chunk:
            raise StepFailed(f"the stream ended with {chunk['error']}", look)
        for choice in chunk.get("choices", []):
            click.echo(choice["delta"].get("content") or "", nl=False)
        if chunk.get("usage"):
            summary = chunk
    click.echo()
    _print_summary(summary)


def _events(port: int, body: dict[str, Any], look: str) -> Iterator[dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request(
            "POST", "/v1/chat/completions", body=json.dumps(body), headers={"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise StepFailed(f"HTTP {response.status}: {response.read().decode(errors='replace')}", look)
        for line in response:
            data = line.decode().strip().removeprefix("data: ")
            if data == "[DONE]":
                return
            if data and not data.startswith(":"):
                yield json.loads(data)
    except (OSError, http.client.HTTPException) as error:
        raise StepFailed(f"no answer from http://127.0.0.1:{port}: {error!r}", look) from error
    finally:
        connection.close()


def _print_summary(chunk: dict[str, Any]) -> None:
    usage, extra = chunk["usage"], chunk["distserve"]
    say(f"{usage['prompt_tokens']} prompt tokens, {usage['completion_tokens']} completion tokens")
    for stage, seconds in extra["stages"].items():
        say(f"{stage.replace('_', ' '):<14} {seconds * 1000:9.1f} ms")
    say(f"{'KV pulled':<14} {extra['kv_bytes']:,} bytes over {extra['transport']}")
