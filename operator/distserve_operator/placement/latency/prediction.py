"""What a law says of one step. The simulator compiles the same sums."""

from collections.abc import Sequence

from distserve_operator.placement.latency.law import DecodePlane, PrefillPlane, StepLaw


def prefill_seconds(planes: Sequence[PrefillPlane], tokens: float, squares: float) -> float:
    """Kernel seconds of a prefill batch of so many tokens, whose squared lengths add up to `squares`."""
    return max(one.fixed + one.per_token * tokens + one.per_square * squares for one in planes)


def decode_seconds(planes: Sequence[DecodePlane], context: float, batch: float) -> float:
    """Kernel seconds of a decode step of `batch` requests with `context` tokens together."""
    return max(one.fixed + one.per_context * context + one.per_request * batch for one in planes)


def chunk_seconds(law: StepLaw, before: float, chunk: float) -> float:
    """What `chunk` tokens of a prompt add to a step, after `before` ones: their own time, and reading the KV so far."""
    squares = (before + chunk) ** 2 - before**2
    return max(one.per_token * chunk + one.per_square * squares for one in law.prefill) + context_seconds(law) * before


def context_seconds(law: StepLaw) -> float:
    """Of reading one token's KV again."""
    return max(one.per_context for one in law.decode)
