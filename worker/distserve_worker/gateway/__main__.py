"""Starts the gateway: `python -m distserve_worker.gateway --help`."""

import asyncio
import logging
import sys
from pathlib import Path

from distserve_proto.contract import ExitReason
from distserve_worker.exiting import WorkerFailure, report
from distserve_worker.gateway.serving import GatewayProcess
from distserve_worker.gateway.settings import parse_settings
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound


def main() -> int:
    """Run the gateway; the exit status is 0 after a signal and 1 after a failure."""
    settings = parse_settings()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    try:
        asyncio.run(GatewayProcess(settings).run())
    except ModelNotFound as error:
        return _failed(ExitReason.MODEL_NOT_FOUND, error, settings.termination_log)
    except ModelInvalid as error:
        return _failed(ExitReason.MODEL_INVALID, error, settings.termination_log)
    except OSError as error:
        return _failed(ExitReason.CONFIGURATION_INVALID, error, settings.termination_log)
    return 0


def _failed(reason: ExitReason, error: Exception, termination_log: Path) -> int:
    report(WorkerFailure(reason, str(error)), termination_log)
    return 1


if __name__ == "__main__":
    sys.exit(main())
