"""A gateway pod whose part the test plays: it answers the operator's question as it is told to."""

import json
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from distserve_proto.contract import GATEWAY_HTTP_PORT

NO_PAIR = "No usable pair of workers: no prefill and decode instance hold the same weights"


class PlayedGateway:
    """Listens on the gateway's port of a loopback address of its own. `refusal`: None when a usable pair exists."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        self.asked: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._server = _bound(self._handler())

    @property
    def address(self) -> str:
        """The IP address of its pod."""
        return str(self._server.server_address[0])

    @contextmanager
    def running(self) -> Iterator["PlayedGateway"]:
        """Answer until the end of the block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gateway.asked.put(self.path)
                status, answer = gateway._answer(self.path)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing: the tests' output is read by people."""

        return Handler

    def _answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if self.refusal is None:
            return 200, {"id": path.rpartition("/")[2], "object": "model", "created": 0, "owned_by": "distserve"}
        error = {"message": self.refusal, "type": "service_unavailable_error", "param": None, "code": "no_usable_pair"}
        return 503, {"error": error}


def _bound(handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """A server on an address of 127.0.0.0/8 that nobody else uses."""
    for _ in range(10):
        address = ".".join(["127", *(str(1 + byte % 250) for byte in os.urandom(3))])
        try:
            return ThreadingHTTPServer((address, GATEWAY_HTTP_PORT), handler)
        except OSError as error:
            refused = error
    raise refused
