"""The gateway's ASGI application: routes, request ids, and the form of errors that no endpoint made itself."""

import uuid

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distserve_worker.gateway.api.dialects import CHAT, COMPLETIONS
from distserve_worker.gateway.api.generating import GenerationEndpoint, Service
from distserve_worker.gateway.api.informing import Information
from distserve_worker.gateway.errors import ApiError, Problem, internal, shown

REQUEST_ID_HEADER = "x-request-id"


class RequestIds:
    """Gives every request an id of ours, whatever id or routing header the client sent, and returns it in a header."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its id."""
        request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


def application(service: Service, created: int) -> ASGIApp:
    """The application; `created` is the model's age for `/v1/models`, in seconds of Unix time."""
    information = Information(service, created)
    routes = [
        Route("/v1/chat/completions", GenerationEndpoint(CHAT, service), methods=["POST"]),
        Route("/v1/completions", GenerationEndpoint(COMPLETIONS, service), methods=["POST"]),
        Route("/v1/models", information.models),
        Route("/v1/models/{name:path}", information.model),
        Route("/healthz", information.alive),
        Route("/readyz", information.ready),
        Route("/metrics", information.metrics),
    ]
    handlers = {HTTPException: _http_error, ApiError: _api_error, Exception: _fault}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return RequestIds(app)


async def _api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError), "the handler is registered for nothing else"
    return _response(error.problem)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "the handler is registered for nothing else"
    message = f"{error.detail}: {shown(request.method)} {shown(request.url.path)}"
    code = "unknown_url" if error.status_code == 404 else None
    response = _response(Problem(error.status_code, message, "invalid_request_error", None, code))
    response.headers.update(error.headers or {})
    return response


async def _fault(_: Request, __: Exception) -> Response:
    return _response(internal().problem)


def _response(problem: Problem) -> Response:
    return JSONResponse(problem.body, status_code=problem.status, headers=problem.headers)
