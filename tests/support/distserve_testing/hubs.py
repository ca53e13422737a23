"""A model hub with one repository, played from a folder: what the hub's own client asks of one, and how they refuse."""

import hashlib
import json
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Final, NamedTuple

REPOSITORY: Final = "hf://org/tiny"
COMMIT: Final = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS: Final = bytes(range(256)) * 4096
REVISIONS: Final = ("main", "v1", COMMIT)
_WAIT_SECONDS: Final = 300
_END_SECONDS: Final = 0.01  # at most until a server notices that it shall end
_CHUNKED_STORAGE: Final = {
    "x-xet-cas-url": "http://127.0.0.1:1",
    "x-xet-access-token": "for-chunks",
    "x-xet-token-expiration": str(2**32),
}
_LARGE: Final = ".safetensors"  # such files are kept in the storage, on another address
_ENDING_WITH_RESET: Final = struct.pack("ii", 1, 0)  # of SO_LINGER


class _Answer(NamedTuple):
    status: int
    content: bytes = b""
    headers: Mapping[str, str] = {}


def _refusal(status: int, code: str, message: str) -> _Answer:
    return _Answer(status, headers={"x-error-code": code, "x-error-message": message})


@dataclass
class Storage:
    """Where large files lie. Each download waits in its middle until `open`; `breaks` of them end there."""

    files: dict[str, Path] = field(default_factory=dict)  # by digest
    open: Event = field(default_factory=Event)
    halfway: Event = field(default_factory=Event)  # a download is in its middle
    breaks: int = 0
    begun: Counter[str] = field(default_factory=Counter)  # downloads by name of the file
    credentials: set[str | None] = field(default_factory=set)  # that were shown here
    url: str = ""
    lock: Lock = field(default_factory=Lock)

    def breaks_now(self) -> bool:
        """Whether the present download is one of those that end in their middle."""
        with self.lock:
            self.breaks -= 1
            return self.breaks >= 0


@dataclass
class Hub:
    """What it is asked for, whether it answers yet, and to whom.

    `token`: who else asks is refused; `gated`: everybody is who asks for files; `status`: everybody is, in this way;
    `hangs_up`: without a word. `chunked`: large files are offered by another storage (Xet) as well, out of reach.
    """

    folder: Path
    asked: list[str] = field(default_factory=list)
    open: Event = field(default_factory=Event)
    url: str = ""
    token: str | None = None
    gated: bool = False
    status: int | None = None
    hangs_up: bool = False
    chunked: bool = False
    storage: Storage = field(default_factory=Storage)

    def environment(self, home: Path, seconds: int = _WAIT_SECONDS) -> dict[str, str]:
        """Of a process that uses this hub and awaits its answers so long; `home` gets what it downloads."""
        patience = {name: str(seconds) for name in ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")}
        quiet = {"HF_HUB_DISABLE_TELEMETRY": "1"}  # which asks the hub for what has nothing to do with models
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(home), **patience, **quiet}

    def answer(self, path: str, credentials: str | None) -> _Answer:
        """To a request for `path` with this header `authorization`."""
        match path.strip("/").split("/"):
            case ["chunks"]:
                return _Answer(200, headers=_CHUNKED_STORAGE)
            case _ if self.status is not None:
                return _refusal(self.status, "", "the hub has a bad day")
            case ["api", "models", "org", "tiny", "auth-check"]:
                return self._refused(credentials, []) or self._gate(credentials) or _Answer(200)
            case ["api", "models", "org", "tiny", *rest]:
                return self._refused(credentials, rest[1:]) or self._listed(rest)
            case ["org", "tiny", "resolve", revision, *name]:
                return self._refused(credentials, [revision]) or self._gate(credentials) or self._file("/".join(name))
        known = credentials is not None
        return _refusal(404 if known else 401, "RepoNotFound", "Repository not found")

    def _refused(self, credentials: str | None, revision: list[str]) -> _Answer | None:
        if self.token is not None and credentials is None:
            return _refusal(401, "RepoNotFound", "Repository not found")
        if self.token is not None and credentials != f"Bearer {self.token}":
            return _refusal(401, "", "Invalid credentials in Authorization header")
        if revision and revision[0] not in REVISIONS:
            return _refusal(404, "RevisionNotFound", f"Invalid rev id: {revision[0]}")
        return None

    def _gate(self, credentials: str | None) -> _Answer | None:
        if not self.gated:
            return None
        return _refusal(401 if credentials is None else 403, "GatedRepo", "Access to model org/tiny is restricted.")

    def _listed(self, rest: list[str]) -> _Answer:
        files = [self._entry(path) for path in sorted(self.folder.rglob("*")) if path.is_file()]
        if rest[:1] == ["tree"]:
            return _Answer(200, json.dumps(files).encode())
        siblings = [{"rfilename": entry["path"]} for entry in files]
        return _Answer(200, json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings}).encode())

    def _entry(self, path: Path) -> dict[str, object]:
        name, size = str(path.relative_to(self.folder)), path.stat().st_size
        entry: dict[str, object] = {"type": "file", "path": name, "size": size, "oid": _digest(path)}
        return entry | (
            {"lfs": {"oid": _digest(path), "size": size, "pointerSize": 130}} if name.endswith(_LARGE) else {}
        )

    def _file(self, name: str) -> _Answer:
        path = self.folder / name
        if not path.is_file():
            return _refusal(404, "EntryNotFound", "Entry not found")
        digest = _digest(path)
        if not name.endswith(_LARGE):
            return _Answer(200, path.read_bytes(), {"etag": f'"{digest}"', "x-repo-commit": COMMIT})
        self.storage.files[digest] = path
        linked = {"x-linked-etag": f'"{digest}"', "x-linked-size": str(path.stat().st_size), "x-repo-commit": COMMIT}
        if self.chunked:
            linked |= {"x-xet-hash": digest, "x-xet-refresh-route": f"{self.url}/chunks"}
        return _Answer(302, headers={**linked, "location": f"{self.storage.url}/{digest}"})


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    def handle(self) -> None:
        with suppress(ConnectionError):  # the process that asked has ended
            super().handle()

    def reply(self, answer: _Answer) -> None:
        """All of it, but for the content where only the head is asked for."""
        self.send_response(answer.status)
        for name, value in {"content-length": str(len(answer.content)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(answer.content)

    def log_message(self, *_: object) -> None:
        """The test's output says nothing about requests."""


def _hub_handler(hub: Hub) -> type[_Handler]:
    class Handler(_Handler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append(path.rpartition("/")[2])
            hub.open.wait(_WAIT_SECONDS)
            if hub.hangs_up:
                raise ConnectionAbortedError
            self.reply(hub.answer(path, self.headers["authorization"]))

        do_HEAD = do_GET  # noqa: N815

    return Handler


def _storage_handler(storage: Storage) -> type[_Handler]:
    class Handler(_Handler):
        def do_GET(self) -> None:
            path = storage.files[self.path.strip("/")]
            storage.begun[path.name] += 1
            storage.credentials.add(self.headers["authorization"])
            content = path.read_bytes()
            first = int((self.headers["range"] or "bytes=0-").removeprefix("bytes=").partition("-")[0])
            span = {"content-range": f"bytes {first}-{len(content) - 1}/{len(content)}"} if first else {}
            half = content[first : (first + len(content)) // 2]
            self.reply(_Answer(206 if first else 200, half, {**span, "content-length": str(len(content) - first)}))
            storage.halfway.set()
            if storage.breaks_now():
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ENDING_WITH_RESET)
                self.connection.close()
                raise ConnectionResetError
            storage.open.wait(_WAIT_SECONDS)
            self.wfile.write(content[first + len(half) :])

    return Handler


@contextmanager
def _served(handler: type[_Handler]) -> Iterator[str]:
    """The URL at which `handler` answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=[_END_SECONDS])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def played_hub(folder: Path) -> Iterator[Hub]:
    """A hub that answers once it is opened; its storage is open."""
    hub = Hub(folder)
    hub.storage.open.set()
    with ExitStack() as stack:
        hub.storage.url = stack.enter_context(_served(_storage_handler(hub.storage)))
        hub.url = stack.enter_context(_served(_hub_handler(hub)))
        # what still waits ends first
        stack.callback(hub.open.set)
        stack.callback(hub.storage.open.set)
        yield hub
