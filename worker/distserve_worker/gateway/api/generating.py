"""The one path of every generation request: chat or completions, streamed or not, they obey the same limits."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from distserve_worker.gateway import errors
from distserve_worker.gateway.admission import Admission, Place
from distserve_worker.gateway.answer import Answer
from distserve_worker.gateway.api.bodies import GenerationBody
from distserve_worker.gateway.api.dialects import Dialect
from distserve_worker.gateway.api.measuring import CLIENT_GONE, Stopwatch
from distserve_worker.gateway.api.preparing import generation, prompt_tokens
from distserve_worker.gateway.api.producing import texts, unless_gone
from distserve_worker.gateway.api.receiving import BodyLimits, ClientGoneError, read_body
from distserve_worker.gateway.api.responses import ResponseWriter, error_event
from distserve_worker.gateway.api.sending import Reply
from distserve_worker.gateway.errors import ApiError, Problem
from distserve_worker.gateway.generation import Generation
from distserve_worker.gateway.readiness import Readiness
from distserve_worker.gateway.running import Runner
from distserve_worker.text.stop_strings import StopStrings
from distserve_worker.text.tokenizer import ModelText

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """What all generation requests share."""

    model: str
    readiness: Readiness
    admission: Admission
    limits: BodyLimits
    runner: Runner


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of a client and what it is answered with."""

    request_id: str
    receive: Receive
    reply: Reply
    stopwatch: Stopwatch


class GenerationEndpoint:
    """The ASGI application of one generation endpoint."""

    def __init__(self, dialect: Dialect[Any], service: Service) -> None:
        self._dialect = dialect
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; every way it can end is an HTTP status or an event in the stream."""
        request_id: str = scope["state"]["request_id"]
        stopwatch = Stopwatch(self._dialect.endpoint, request_id, self._service.runner.metrics)
        exchange = Exchange(request_id, receive, Reply(send), stopwatch)
        code = CLIENT_GONE
        try:
            code = await self._handle(scope, exchange)
        except ClientGoneError:
            log.debug("request %s: the client is gone", request_id)
        finally:
            stopwatch.ended(code)

    async def _handle(self, scope: Scope, exchange: Exchange) -> int:
        """Answer or say what is wrong; returns the status, also of an error that comes after the first byte."""
        try:
            with self._service.admission.place() as place:
                body = await self._read(scope, exchange, place)
                await unless_gone(exchange.receive, self._answer(body, exchange))
        except ApiError as error:
            problem = error.problem
        except ClientGoneError:
            raise
        except asyncio.CancelledError:  # only the server cancels, when the time to drain is over
            problem = errors.unavailable("The gateway is shutting down", "shutting_down").problem
        except Exception:
            log.exception("request %s failed", exchange.request_id)
            problem = errors.internal().problem
        else:
            return exchange.reply.status
        await _tell(exchange.reply, problem)
        return problem.status

    async def _read(self, scope: Scope, exchange: Exchange, place: Place) -> GenerationBody:
        """The checked body; its bytes are let go here, before an answer that may take minutes."""
        raw = await read_body(scope, exchange.receive, self._service.limits, place.grow)
        body: GenerationBody = self._dialect.read(raw)
        return body

    async def _answer(self, body: GenerationBody, exchange: Exchange) -> None:
        text = self._service.readiness.text
        if body.model != self._service.model:
            raise errors.model_not_found(body.model)
        job = await self._prepare(body, text, exchange.request_id)
        writer = ResponseWriter.of(self._dialect, body, job, int(time.time()))
        changed = asyncio.Event()

        def grown() -> None:
            exchange.stopwatch.token()
            changed.set()

        answer = Answer(text.tokenizer.detokenizer(), StopStrings(job.stop_strings), grown)
        async with aclosing(texts(self._service.runner.run(job, answer), answer, changed)) as pieces:
            send = _stream if body.stream else _whole
            await send(pieces, writer, answer, exchange.reply)
        exchange.stopwatch.answered(job, answer)

    async def _prepare(self, body: GenerationBody, text: ModelText, request_id: str) -> Generation:
        longest = self._service.runner.fleet.longest_request()
        if longest is None:
            raise self._service.runner.no_pair()
        prompt = await asyncio.to_thread(prompt_tokens, self._dialect, body, text, longest)
        return generation(request_id, body, prompt, text.tokenizer)


async def _stream(pieces: AsyncIterator[str], writer: ResponseWriter, answer: Answer, reply: Reply) -> None:
    """The first token brings the status and the first bytes, even when it completes no text yet."""
    async for piece in pieces:
        opening = b"" if reply.started else writer.opening()
        await reply.stream(opening + writer.piece(piece))
    await reply.end_stream(writer.ending(answer))


async def _whole(pieces: AsyncIterator[str], writer: ResponseWriter, answer: Answer, reply: Reply) -> None:
    text = "".join([piece async for piece in pieces])
    await reply.json(200, writer.whole(answer, text))


async def _tell(reply: Reply, problem: Problem) -> None:
    if reply.started:
        await reply.end_stream(error_event(problem))
    else:
        await reply.problem(problem)
