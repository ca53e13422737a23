"""Starts a worker: `python -m distserve_worker.server --help`."""

import asyncio
import logging
import os
import sys

from distserve_proto.contract import ExitReason
from distserve_worker.exiting import WorkerFailure, report
from distserve_worker.server.arguments import parse_arguments, termination_log_of
from distserve_worker.server.pinning import pin_libraries, thread_count
from distserve_worker.server.running import run_worker
from distserve_worker.unforeseen import described

log = logging.getLogger(__name__)


def main() -> int:
    """Run until the end; the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    termination_log = termination_log_of(sys.argv[1:])  # flags can be wrong, and that is to be left there too
    try:
        config = parse_arguments(sys.argv[1:])
        threads = thread_count(os.environ)
        pin_libraries(threads)
        # Not `asyncio.run`: that starts a thread at its end, for which there may be no memory; ours ends the process.
        asyncio.new_event_loop().run_until_complete(run_worker(config, threads))
    except WorkerFailure as failure:
        report(failure, termination_log)
        return 1
    except Exception as error:
        log.exception("the worker failed")
        report(WorkerFailure(ExitReason.ENGINE_FAILED, described(error)), termination_log)
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    sys.stdout.flush()
    # The engine thread may be inside a step: ordinary interpreter shutdown under it can crash, and takes its time.
    os._exit(status)
