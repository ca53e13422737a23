"""A profile and how well it fits, as plain data for scripts and tables alike. Milliseconds and percent."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from distserve_cli.profiling.laws import TENSOR_PARALLELISM, Measured
from distserve_operator.placement.latency.fit_error import decode_errors, mixed_errors, prefill_errors
from distserve_operator.placement.latency.law import StepLaw
from distserve_operator.placement.latency.measurement import MixedPoint
from distserve_operator.placement.latency.profile import Profile
from distserve_operator.placement.latency.saturation import saturating_tokens, throughput
from distserve_operator.placement.latency.soundness import poor_fits
from distserve_worker.measuring.messages import MixedStep, Step

Json = dict[str, Any]


def profile_json(profile: Profile, measured: Measured) -> Json:
    """Errors are those of the kernels' part of a step, which is what the laws are fitted to."""
    law, points = profile.laws[TENSOR_PARALLELISM], profile.points[TENSOR_PARALLELISM]
    bench = measured.bench
    return {
        "model": profile.model,
        "weightType": profile.weight_type,
        "device": profile.device,
        "processor": bench.processor,
        "threads": bench.threads,
        "temperature": bench.temperature,
        "engine": profile.engine,
        "tensorParallelism": TENSOR_PARALLELISM,
        "saturatingTokens": saturating_tokens(law),
        "saturatingTokensPerSecond": _figure(throughput(law, saturating_tokens(law))),
        "prefill": _phase(
            measured.prefill, [one.seconds for one in points.prefill], prefill_errors(law, points.prefill)
        ),
        "decode": _phase(measured.decode, [one.seconds for one in points.decode], decode_errors(law, points.decode)),
        "mixed": _mixed(measured.mixed, points.mixed, mixed_errors(law, profile.overlap, points.mixed)),
        "chunkOverlap": _figure(profile.overlap) if measured.mixed else None,
        "host": _host(law),
        "problems": [str(problem) for problem in poor_fits(profile)],
    }


def _mixed(steps: Sequence[MixedStep], points: Sequence[MixedPoint], errors: Sequence[float]) -> Json:
    return {
        "steps": [
            {
                "requests": step.requests,
                "before": step.before,
                "tokens": step.chunk,
                "alone": _milliseconds(point.alone),
                "step": _milliseconds(point.seconds),
                "fitted": _milliseconds(point.seconds * (1 + error)),
                "error": _percent(error),
                "noise": _percent(step.spread),
                "repetitions": step.repetitions,
            }
            for step, point, error in zip(steps, points, errors, strict=True)
        ],
        **_summary(errors),
    }


def _phase(steps: Sequence[Step], kernels: Sequence[float], errors: Sequence[float]) -> Json:
    return {"steps": [_step(*each) for each in zip(steps, kernels, errors, strict=True)], **_summary(errors)}


def _summary(errors: Sequence[float]) -> Json:
    distances = [abs(error) for error in errors] or [0.0]
    return {"meanError": _percent(fmean(distances)), "worstError": _percent(max(distances))}


def _step(step: Step, kernels: float, error: float) -> Json:
    return {
        "requests": step.requests,
        "tokens": step.tokens,
        "squaredTokens": step.squares,
        "step": _milliseconds(step.seconds),
        "measured": _milliseconds(kernels),
        "fitted": _milliseconds(kernels * (1 + error)),
        "error": _percent(error),
        "noise": _percent(step.spread),
        "repetitions": step.repetitions,
    }


def _host(law: StepLaw) -> Json:
    host = law.host
    return {
        "perBatch": _milliseconds(host.per_batch),
        "perStep": _milliseconds(host.per_step),
        "perStepRequest": _milliseconds(host.per_step_request),
    }


def _milliseconds(seconds: float) -> float:
    return _figure(1000 * seconds)


def _percent(share: float) -> float:
    return round(100 * share, 2) + 0.0  # no -0.0


def _figure(value: float) -> float:
    return float(f"{value:.6g}")
