"""L_m: how long a prefill batch must be to saturate the device (paper, section 4.3)."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from distserve_operator.placement.latency.law import StepLaw
from distserve_operator.placement.latency.prediction import prefill_seconds

# With nine tenths OPT-13B on A100 comes to 550 tokens, where the paper reads 512 off its figure. More throughput would
# cost waiting time out of proportion: the last tenth takes batches three times as long.
SHARE: Final = 0.9
MOST: Final = 8192


@lru_cache(maxsize=1024)
def saturating_tokens(law: StepLaw, share: float = SHARE, most: int = MOST) -> int:
    """The shortest prompt that is prefilled at `share` of the best throughput of any prompt up to `most` tokens.

    Throughput is tokens over kernel seconds. It rises with the length as long as fixed costs dominate and falls where
    attention does, with one peak in between, because a step's time is a convex function of the length.
    """
    peak = _first(1, most, lambda tokens: tokens == most or throughput(law, tokens + 1) <= throughput(law, tokens))
    enough = share * throughput(law, peak)
    return _first(1, peak, lambda tokens: throughput(law, tokens) >= enough)


def throughput(law: StepLaw, tokens: int) -> float:
    """Tokens per second of prefilling one prompt of this length."""
    return tokens / prefill_seconds(law.prefill, tokens, tokens * tokens)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first number from `low` on for which `holds`, which stays true up to `high`."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
