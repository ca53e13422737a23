"""The gateway process: starts its parts, stays until a signal, drains, and leaves nothing running."""

import asyncio
import json
import logging
import signal
import socket
import time
from collections.abc import Iterable

from distserve_worker.gateway.admission import Admission
from distserve_worker.gateway.api.application import application
from distserve_worker.gateway.api.generating import Service
from distserve_worker.gateway.api.receiving import BodyLimits
from distserve_worker.gateway.deadlines import Deadlines
from distserve_worker.gateway.discovery import fixed
from distserve_worker.gateway.fleet import Fleet
from distserve_worker.gateway.http.listening import Server, address_of, listen, server
from distserve_worker.gateway.http.patience import Patience
from distserve_worker.gateway.metrics import Metrics
from distserve_worker.gateway.readiness import Readiness
from distserve_worker.gateway.running import Runner
from distserve_worker.gateway.settings import Settings
from distserve_worker.gateway.workers.attaching import Target
from distserve_worker.text.loading import load_text
from distserve_worker.text.tokenizer import ModelText
from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.locating import TEXT_FILES, locate
from distserve_worker.weights.tokenizer_digest import tokenizer_digest

log = logging.getLogger(__name__)


class GatewayProcess:
    """One gateway with the parts that its settings ask for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._readiness = Readiness()
        self._fleet = Fleet(settings.served_name)
        self._server = self._build_server()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain. Raises what makes serving impossible."""
        settings = self._settings
        listener = listen(settings.host, settings.port, settings.send_buffer_bytes)
        self._handle_signals()
        print(json.dumps({"http": address_of(listener)}), flush=True)
        try:
            await self._serve(listener)
        finally:
            await self._fleet.close()

    async def _serve(self, listener: socket.socket) -> None:
        """The server's end ends the process; a part that fails ends it too."""
        serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        parts = [asyncio.create_task(part) for part in (self._load(), self._discover())]
        try:
            pending: set[asyncio.Task[None]] = {serving, *parts}
            while not serving.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in (serving, *parts):
                task.cancel()
            await asyncio.gather(serving, *parts, return_exceptions=True)

    async def _load(self) -> None:
        def read() -> tuple[ModelText, str]:
            path = locate(self._settings.model, TEXT_FILES)
            return load_text(path), tokenizer_digest(path)

        try:
            text, self._fleet.tokenizer_digest = await asyncio.to_thread(read)
        except OSError as error:  # it is there, but cannot be read
            raise ModelNotFound(f"{self._settings.model}: {error}") from error
        self._readiness.loaded(text)
        log.info("tokenizer of %s loaded", self._settings.model)

    async def _discover(self) -> None:
        if self._settings.deployment is None:
            self._found(fixed.targets(self._settings.workers))
            return
        # imported here: a gateway with a fixed list needs no Kubernetes client
        from distserve_worker.gateway.discovery.watching import PodWatch

        await PodWatch(self._settings.deployment, self._settings.namespace, self._found).run()

    def _found(self, targets: Iterable[Target]) -> None:
        self._fleet.update(targets)
        self._readiness.discovered = True

    def _build_server(self) -> Server:
        settings = self._settings
        metrics = Metrics(self._fleet.usable_pairs, self._fleet.ready)
        deadlines = Deadlines(settings.deadline_base_seconds, settings.deadline_milliseconds_per_token)
        service = Service(
            model=settings.served_name,
            readiness=self._readiness,
            admission=Admission(settings.max_requests, settings.max_bodies_bytes, metrics),
            limits=BodyLimits(settings.max_body_bytes, settings.body_seconds),
            runner=Runner(self._fleet, deadlines, metrics),
            isolate_prefixes=settings.isolate_prefixes,
        )
        patience = Patience(settings.header_seconds, settings.write_seconds)
        return server(application(service, int(time.time())), patience, settings.drain_seconds)

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, number)

    def _stop(self, number: int) -> None:
        """The first signal drains, a second one ends the process without waiting."""
        log.info("%s: draining for at most %g s", signal.Signals(number).name, self._settings.drain_seconds)
        self._server.force_exit = self._readiness.draining
        self._readiness.draining = True
        self._server.should_exit = True
