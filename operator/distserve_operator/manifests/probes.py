"""Probes over plain HTTP: live and ready are different questions (`/healthz` and `/readyz`)."""

from typing import Any, Final

# Large weights take long to read from slow storage; until they are loaded only this budget counts.
_START_PERIOD_SECONDS: Final = 1
_START_BUDGET_SECONDS: Final = 3600


def probes(port_name: str) -> dict[str, Any]:
    """The three probes of a container that answers on the port called `port_name`."""
    ready, alive = _get("/readyz", port_name), _get("/healthz", port_name)
    attempts = _START_BUDGET_SECONDS // _START_PERIOD_SECONDS
    return {
        "startupProbe": {**ready, "periodSeconds": _START_PERIOD_SECONDS, "failureThreshold": attempts},
        "readinessProbe": {**ready, "periodSeconds": 2, "failureThreshold": 2},
        "livenessProbe": {**alive, "periodSeconds": 10, "failureThreshold": 6},
    }


def _get(path: str, port_name: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port_name}, "timeoutSeconds": 5}
