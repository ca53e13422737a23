"""Starts the measuring process: `python -m distserve_worker.measuring --help`."""

import logging
import os
import sys

from distserve_proto.contract import ExitReason
from distserve_worker.exiting import WorkerFailure
from distserve_worker.measuring.arguments import MeasuringConfig, parse_arguments
from distserve_worker.measuring.inspecting import free_memory
from distserve_worker.measuring.memory import kv_bytes
from distserve_worker.measuring.messages import Failure, Message, line_of
from distserve_worker.server.pinning import pin_libraries, pin_torch
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.locating import locate
from distserve_worker.weights.reading import read_config

log = logging.getLogger(__name__)

INTERRUPTED = 130  # as shells count


def main() -> int:
    """Measure, and tell it on standard output; the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return _run(sys.argv[1:])
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody listens any more. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(arguments: list[str]) -> int:
    try:
        _measure(parse_arguments(arguments))
    except WorkerFailure as failure:
        return _failed(failure.reason, str(failure).partition(": ")[2])
    except ModelNotFound as error:
        return _failed(ExitReason.MODEL_NOT_FOUND, str(error))
    except ModelInvalid as error:
        return _failed(ExitReason.MODEL_INVALID, str(error))
    except BrokenPipeError:
        raise
    except Exception as error:
        log.exception("measuring failed")
        return _failed(ExitReason.ENGINE_FAILED, str(error) or repr(error))
    return 0


def _measure(config: MeasuringConfig) -> None:
    path = locate(config.model)
    model = read_config(path)
    # imported from here on: torch takes seconds, and what is wrong with the input is told before
    pin_libraries(config.threads)
    pin_torch(config.threads)
    room = kv_bytes(model, config.dtype, free_memory())
    from distserve_worker.measuring.running import Measuring

    Measuring(config, path, model, room, _tell).run()


def _failed(reason: ExitReason, text: str) -> int:
    _tell(Failure(reason, text))
    return 1


def _tell(message: Message) -> None:
    print(line_of(message), flush=True)


if __name__ == "__main__":
    sys.exit(main())
