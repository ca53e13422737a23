"""The endpoints that generate nothing: models, health, readiness, metrics."""

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from distserve_worker.gateway.api.generating import Service
from distserve_worker.gateway.errors import model_not_found


class Information:
    """Answers from what the gateway knows at the moment."""

    def __init__(self, service: Service, created: int) -> None:
        self._service = service
        self._created = created

    async def models(self, _: Request) -> Response:
        """The model, when at least one usable pair can serve it; otherwise an empty list."""
        longest = self._service.runner.fleet.longest_request()
        data = [] if longest is None else [self._model(longest)]
        return JSONResponse({"object": "list", "data": data})

    async def model(self, request: Request) -> Response:
        """One model by its name."""
        name: str = request.path_params["name"]
        longest = self._service.runner.fleet.longest_request()
        if name != self._service.model:
            raise model_not_found(name)
        if longest is None:
            raise self._service.runner.no_pair()
        return JSONResponse(self._model(longest))

    async def alive(self, _: Request) -> Response:
        """The process answers."""
        return PlainTextResponse("ok\n")

    async def ready(self, _: Request) -> Response:
        """The gateway can answer; whether there are workers shows in `/v1/models`."""
        missing = self._service.readiness.missing
        if missing:
            return PlainTextResponse("".join(f"{reason}\n" for reason in missing), status_code=503)
        return PlainTextResponse("ready\n")

    async def metrics(self, _: Request) -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(self._service.runner.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    def _model(self, longest: int) -> dict[str, str | int]:
        return {
            "id": self._service.model,
            "object": "model",
            "created": self._created,
            "owned_by": "distserve",
            "max_model_length": longest,
        }
