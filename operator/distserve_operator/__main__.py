"""Starts the operator: `python -m distserve_operator --help`."""

import asyncio
import logging
import signal
import sys

from distserve_operator.arguments import parse_arguments
from distserve_operator.checking import check
from distserve_operator.running import run_operator

log = logging.getLogger("distserve_operator")


def main() -> int:
    """Run the operator, or its check; the exit status is 0 after a signal and 1 after a failure."""
    arguments = parse_arguments()
    level = arguments.log_level.upper()
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # What kopf has to say about healthy watches is not for the operator's log.
    for name in ("kopf", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
    # Until kopf handles it; the first process of a container has no default action for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        if arguments.check:
            missing = asyncio.run(check(arguments))
            log.info("checked: %s", "; ".join(missing) or "the custom resource is served and all rights are there")
            return 1 if missing else 0
        asyncio.run(run_operator(arguments))
    except Exception as error:  # the reason is the last line of the log, whatever it was
        log.exception("the operator ends: %s", error or type(error).__name__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
