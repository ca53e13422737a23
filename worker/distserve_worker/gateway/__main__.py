"""Starts the gateway: `python -m distserve_worker.gateway --help`."""

import asyncio
import logging
import sys
from pathlib import Path

from distserve_proto.contract import ExitReason
from distserve_worker.gateway.serving import GatewayProcess
from distserve_worker.gateway.settings import TERMINATION_LOG, parse_settings
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound

log = logging.getLogger("distserve_worker.gateway")


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
    message = f"{reason}: {error}"
    log.error("%s", message)
    # outside of a container the default file does not exist and is not made
    if termination_log != TERMINATION_LOG or termination_log.exists():
        termination_log.write_text(message)
    return 1


if __name__ == "__main__":
    sys.exit(main())
