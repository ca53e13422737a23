"""What the endpoints answer, over HTTP and with real workers."""

import json
import subprocess
import sys
from typing import Any

import httpx
import pytest
from distserve_testing.gateway_process import GatewayProcess
from distserve_testing.workers import Pair

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO: dict[str, Any] = {
    CHAT: {"messages": [{"role": "user", "content": "hello"}]},
    COMPLETIONS: {"prompt": "hello"},
}
ENDPOINTS = pytest.mark.parametrize("path", list(HELLO))


def _body(path: str, **fields: Any) -> dict[str, Any]:
    return {"model": "test-model", "max_tokens": 6, "temperature": 0, **HELLO[path], **fields}


def _events(response: httpx.Response) -> list[Any]:
    """The events of a stream, its end mark included."""
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def _stream(gateway: GatewayProcess, path: str, **fields: Any) -> list[Any]:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    response = gateway.post(path, _body(path, **options, **fields))
    assert response.status_code == 200, response.text
    return _events(response)


def _text(choice: dict[str, Any]) -> str:
    if "text" in choice:
        return str(choice["text"])
    message = choice.get("delta") or choice["message"]
    return str(message["content"])


def _without_times(report: dict[str, Any]) -> dict[str, Any]:
    return report | {"stages": sorted(report["stages"])}


@ENDPOINTS
def test_streamed_and_whole_answers_are_the_same(gateway: GatewayProcess, path: str) -> None:
    """B2 and B12: text, reason, usage, stages, KV bytes, transport and workers."""
    whole = gateway.post(path, _body(path)).json()
    *chunks, ending, usage, done = _stream(gateway, path)
    assert done == "[DONE]"
    assert "".join(_text(chunk["choices"][0]) for chunk in chunks) == _text(whole["choices"][0])
    assert ending["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
    assert usage["usage"] == whole["usage"]
    assert _without_times(usage["distserve"]) == _without_times(whole["distserve"])


@ENDPOINTS
def test_an_answer_reports_its_five_stages_and_its_transfer(gateway: GatewayProcess, pair: Pair, path: str) -> None:
    report = gateway.post(path, _body(path)).json()["distserve"]
    assert set(report["stages"]) == {"prefill_queue", "prefill", "transfer", "decode_queue", "decode"}
    assert all(seconds > 0 for seconds in report["stages"].values())
    assert report["kv_bytes"] > 0
    assert report["transport"] == "shm"
    assert (report["prefill_worker"], report["decode_worker"]) == (pair[0].grpc, pair[1].grpc)


@ENDPOINTS
def test_the_produced_token_ids_come_on_request(gateway: GatewayProcess, path: str) -> None:
    whole = gateway.post(path, _body(path, return_token_ids=True)).json()
    assert len(whole["choices"][0]["token_ids"]) == whole["usage"]["completion_tokens"] == 6
    assert "token_ids" not in gateway.post(path, _body(path)).json()["choices"][0]


@ENDPOINTS
def test_a_single_token_needs_no_decode_leg(gateway: GatewayProcess, path: str) -> None:
    """B9 and B12: exactly one token, the same fields, nothing pulled."""
    body = gateway.post(path, _body(path, max_tokens=1)).json()
    assert body["usage"]["completion_tokens"] == 1
    assert body["choices"][0]["finish_reason"] == "length"
    report = body["distserve"]
    assert (report["kv_bytes"], report["transport"], report["decode_worker"]) == (0, None, None)
    assert set(body) == set(gateway.post(path, _body(path)).json())


def test_a_stop_string_in_the_first_token_ends_after_prefill(gateway: GatewayProcess) -> None:
    """B9 and B11; the parked KV is freed without a decode leg."""
    first = gateway.complete(max_tokens=1).json()["choices"][0]["text"]
    body = gateway.complete(stop=[first]).json()
    assert (body["choices"][0]["text"], body["choices"][0]["finish_reason"]) == ("", "stop")
    assert (body["usage"]["completion_tokens"], body["distserve"]["decode_worker"]) == (1, None)


def test_a_stop_string_ends_a_decode_leg_with_all_its_stages(gateway: GatewayProcess) -> None:
    """B11 and B12."""
    text = gateway.complete().json()["choices"][0]["text"]
    body = gateway.complete(stop=[text[len(text) // 2 :]]).json()
    assert text.startswith(body["choices"][0]["text"])
    assert body["choices"][0]["finish_reason"] == "stop"
    assert all(seconds > 0 for seconds in body["distserve"]["stages"].values())
    assert body["distserve"]["kv_bytes"] > 0


@ENDPOINTS
def test_the_first_token_arrives_while_the_rest_is_generated(gateway: GatewayProcess, pair: Pair, path: str) -> None:
    """B10, and B5: the client leaves after the first text."""
    body = _body(path, stream=True, max_tokens=2000, ignore_eos=True)
    with httpx.stream("POST", gateway.url + path, json=body, timeout=60) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["cache-control"] == "no-cache"
        lines = response.iter_lines()  # the connection closes with it
        assert next(lines).startswith("data: ")
        pair[1].wait_for(requests_running=1)


def test_a_prompt_that_the_template_refuses_names_the_messages(gateway: GatewayProcess) -> None:
    body = _body(CHAT, messages=[{"role": "user", "content": "refuse me"}])
    problem = gateway.post(CHAT, body).json()["error"]
    assert problem == {
        "message": "'messages': the model's chat template refuses them: no, thank you",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "invalid_value",
    }


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "unknown_url"),
        ("GET", "/", 404, "unknown_url"),
        ("POST", "/v1/completions/", 404, "unknown_url"),
        ("GET", CHAT, 405, None),
        ("DELETE", "/v1/models", 405, None),
        ("POST", "/v1/models/other", 405, None),
        ("GET", "/v1/models/other", 404, "model_not_found"),
        ("POST", COMPLETIONS, 400, "invalid_json"),
    ],
)
def test_every_error_has_openais_shape_and_our_request_id(
    gateway: GatewayProcess, method: str, path: str, status: int, code: str | None
) -> None:
    response = httpx.request(method, gateway.url + path, timeout=60)
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    assert len(response.headers["x-request-id"]) == 32


@pytest.mark.parametrize(
    ("method", "path", "headers", "fields"),
    [
        ("GET", "/" + "x" * 20_000, {}, {}),
        ("GET", "/v1/models/" + "x" * 20_000, {}, {}),
        ("POST", CHAT, {"content-type": "x" * 20_000}, {}),
        ("POST", CHAT, {"content-encoding": "x" * 20_000}, {}),
        ("POST", CHAT, {}, {"model": "x" * 20_000}),
        ("POST", CHAT, {}, {"messages": [{"role": "user", "content": "repeat me" + "x" * 20_000}]}),
    ],
)
def test_an_error_repeats_little_of_what_the_client_sent(
    gateway: GatewayProcess, method: str, path: str, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    headers = {"content-type": "application/json", **headers}
    body = json.dumps(_body(CHAT, **fields))
    response = httpx.request(method, gateway.url + path, headers=headers, content=body, timeout=60)
    assert 400 <= response.status_code < 500
    assert "x" * 20 in response.json()["error"]["message"]
    assert len(response.text) < 400


@pytest.mark.parametrize("field", ["max_tokens", "top_k", "seed"])
def test_a_number_of_thousands_of_digits_is_refused(gateway: GatewayProcess, field: str) -> None:
    """The longest that is JSON here, one digit short of what Python can write down."""
    response = gateway.complete(**{field: 10**4299})
    assert (response.status_code, response.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_bodies_that_are_no_json_by_their_type_are_refused(gateway: GatewayProcess, kind: str) -> None:
    response = httpx.post(gateway.url + COMPLETIONS, content=b"{}", headers={"content-type": kind}, timeout=60)
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_compressed_bodies_are_refused(gateway: GatewayProcess) -> None:
    response = gateway.post(COMPLETIONS, {}, headers={"content-encoding": "gzip"})
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_headers_of_a_client_do_not_reach_the_workers(gateway: GatewayProcess) -> None:
    """B22: neither an id nor a route of the client's choice is taken."""
    headers = {"x-request-id": "mine", "x-prefill-host": "10.9.9.9:9000", "x-worker-address": "10.9.9.9:9000"}
    response = gateway.post(COMPLETIONS, _body(COMPLETIONS), headers=headers)
    assert response.status_code == 200
    assert response.headers["x-request-id"] != "mine"
    assert response.json()["id"] == f"cmpl-{response.headers['x-request-id']}"


def test_the_same_limits_hold_for_all_kinds_of_requests(gateway: GatewayProcess) -> None:
    """B2 and B4: before anything is streamed."""
    for path in HELLO:
        for stream in (False, True):
            response = gateway.post(path, _body(path, stream=stream, max_tokens=5000))
            assert response.status_code == 400
            assert response.json()["error"]["code"] == "context_length_exceeded"
            assert response.json()["error"]["param"] == "max_tokens"


def test_token_ids_outside_the_vocabulary_are_refused(gateway: GatewayProcess) -> None:
    error = gateway.complete(prompt=[5, 49152]).json()["error"]
    assert (error["param"], error["message"]) == (
        "prompt[1]",
        "'prompt[1]': the vocabulary has 49152 tokens, got 49152",
    )


def test_metrics_count_requests_tokens_and_stages(gateway: GatewayProcess) -> None:
    before = gateway.metrics()
    assert gateway.complete(max_tokens=5).status_code == 200
    assert gateway.complete(max_tokens=-5).status_code == 400
    after = gateway.metrics()

    def grown(name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    assert grown('request_total{code="200",endpoint="completions"}') == 1
    assert grown('request_total{code="400",endpoint="completions"}') == 1
    assert grown('tokens_total{kind="output"}') == 5
    assert grown('tokens_total{kind="prompt"}') > 0
    assert grown("ttft_seconds_count") == grown("tpot_seconds_count") == 1
    assert grown('stage_seconds_count{stage="transfer"}') == 1
    assert (after["usable_pairs"], after["requests_in_flight"]) == (1, 0)


def test_the_gateway_runs_without_torch() -> None:
    program = (
        "import sys; import distserve_worker.gateway.__main__, distserve_worker.gateway.discovery.watching; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
