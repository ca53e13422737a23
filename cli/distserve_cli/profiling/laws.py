"""From measured steps to a profile."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distserve_cli.profiling.subject import Subject
from distserve_operator.placement.latency.fitting import fit_law, fit_overlap
from distserve_operator.placement.latency.law import EngineRules, HostCost
from distserve_operator.placement.latency.measurement import DecodePoint, MixedPoint, Points, PrefillPoint
from distserve_operator.placement.latency.planes import fit_plane
from distserve_operator.placement.latency.profile import Profile
from distserve_worker.measuring.messages import MixedStep, Step
from distserve_worker.measuring.messages import Subject as Bench

TENSOR_PARALLELISM = 1  # the engine's only one


@dataclass(frozen=True, slots=True)
class Measured:
    """What the measuring process told: on what, and the steps of each kind in the order of their work."""

    bench: Bench
    prefill: tuple[Step, ...]
    decode: tuple[Step, ...]
    mixed: tuple[MixedStep, ...] = ()


def profile_of(subject: Subject, measured: Measured, day: str) -> Profile:
    """The profile with all points. Raises ValueError when no law can be fitted to them."""
    bench = measured.bench
    host = host_cost(measured.prefill, measured.decode)
    points = Points(
        tuple(PrefillPoint(one.tokens, one.squares, one.seconds - host.per_batch) for one in measured.prefill),
        tuple(DecodePoint(one.tokens, one.requests, one.seconds - _of_step(host, one)) for one in measured.decode),
        tuple(_mixed_point(host, one) for one in measured.mixed),
    )
    law = fit_law(points, host)
    threads = f"{bench.threads} thread{'s' if bench.threads > 1 else ''}"
    return Profile(
        engine="distserve",
        device=bench.device,
        model=subject.name,
        weight_type=subject.weight_type,
        origin=f"distserve profile on {bench.processor}, {threads}, temperature {bench.temperature:g}, {day}",
        laws={TENSOR_PARALLELISM: law},
        rules=EngineRules(decode_requests=bench.decode_requests),
        overlap=fit_overlap(law, points.mixed),
        points={TENSOR_PARALLELISM: points},
    )


def host_cost(prefill: Sequence[Step], decode: Sequence[Step]) -> HostCost:
    """What takes the host's time. What grows with the tokens of a prefill batch stays with its kernels' law."""
    columns = np.array([(1.0, one.requests) for one in decode], dtype=np.float64)
    per_step, per_request = fit_plane(columns, np.array([one.host_seconds for one in decode]))
    return HostCost(
        per_batch=min(one.host_seconds for one in prefill),
        per_step=float(per_step),
        per_step_request=float(per_request),
    )


def _mixed_point(host: HostCost, step: MixedStep) -> MixedPoint:
    """The prompt ends in its step, so the host chooses one token more."""
    return MixedPoint(step.before, step.chunk, step.alone, max(step.alone, step.seconds - host.per_step_request))


def _of_step(host: HostCost, step: Step) -> float:
    return host.per_step + host.per_step_request * step.requests
