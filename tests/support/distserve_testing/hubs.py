"""A model hub with one repository, played from a folder."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Final

REPOSITORY: Final = "hf://org/tiny"
_COMMIT: Final = "0" * 40
_WAIT_SECONDS: Final = 300


class Hub:
    """What it is asked for, and whether it answers yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.open = Event()
        self.url = ""

    def environment(self, home: Path) -> dict[str, str]:
        """Of a process that uses this hub and patiently awaits its answers; `home` gets what it downloads."""
        patience = {name: str(_WAIT_SECONDS) for name in ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")}
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(home), **patience}

    def content(self, path: str) -> bytes:
        """The answer to a request for `path`."""
        if not path.startswith("/api/"):
            return (self.folder / path.rpartition("/")[2]).read_bytes()
        tree = [
            {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": file.name}
            for file in self.folder.iterdir()
        ]
        files = [{"rfilename": file["path"]} for file in tree]
        return json.dumps(tree if "/tree/" in path else {"id": "org/tiny", "sha": _COMMIT, "siblings": files}).encode()


@contextmanager
def played_hub(folder: Path) -> Iterator[Hub]:
    """A hub that answers once it is opened."""
    hub = Hub(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            name = path.rpartition("/")[2]
            hub.asked.append(name)
            hub.open.wait(_WAIT_SECONDS)
            content = hub.content(path)
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.send_header("etag", f'"{name}"')
            self.send_header("x-repo-commit", _COMMIT)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815

        def handle(self) -> None:
            with suppress(ConnectionError):  # the process that asked has ended
                super().handle()

        def log_message(self, *_: object) -> None:
            """The test's output says nothing about requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield hub
        finally:
            hub.open.set()
            server.shutdown()
            thread.join()
