"""Command line of the measuring process."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Never

from distserve_proto.contract import ExitReason
from distserve_worker import flags
from distserve_worker.exiting import WorkerFailure

# torch's names of the devices that can be measured, by the names that plans give them
DEVICES: Final = {"CPU": "cpu"}
AUTO: Final = "auto"
DTYPES: Final = ("FP32", "BF16", "FP16", "INT8")  # that the engine has, which this part does without


@dataclass(frozen=True, slots=True)
class MeasuringConfig:
    """Everything the process is told; `device` is one of `DEVICES`."""

    model: str
    dtype: str
    device: str
    threads: int
    seconds: float
    temperature: float


def parse_arguments(arguments: Sequence[str]) -> MeasuringConfig:
    """Read the flags. Raises `WorkerFailure` (ConfigurationInvalid) naming the flag."""
    found = _parser().parse_args(arguments)
    if found.device == AUTO:
        found.device = next(iter(DEVICES))
    usable = len(os.sched_getaffinity(0))
    if found.threads > usable:
        raise _invalid(f"--threads {found.threads}: {usable} CPUs can be used here; give at most so many")
    return MeasuringConfig(**vars(found))


def _invalid(text: str) -> WorkerFailure:
    return WorkerFailure(ExitReason.CONFIGURATION_INVALID, text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Never:
        raise _invalid(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m distserve_worker.measuring",
        description="Measure the steps of the engine; tell them as lines of JSON.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", required=True, help="path or URI (file://, hf://) of the weights")
    add("--dtype", choices=DTYPES, default="FP32", help="of weights and KV cache; INT8: of matrices only")
    add("--device", choices=(*DEVICES, AUTO), default=AUTO, help="to measure on; auto: the CPU")
    add("--threads", type=flags.integer(1, 1024), default=1, help="of one step")
    add("--seconds", type=flags.seconds, default=60.0, help="to measure for, loading apart")
    add("--temperature", type=flags.number(0.0, 100.0), default=1.0, help="of all requests; 0 is greedy")
    return parser
