"""Engines whose steps are known, and the bounds of their schedulers where no profile says them."""

from types import MappingProxyType
from typing import Final

from distserve_operator.placement.latency.law import EngineRules

ENGINE_RULES: Final = MappingProxyType[str, EngineRules](
    {
        "distserve": EngineRules(),
        "vllm": EngineRules(colocated_tokens=2048, prefill_requests=256, decode_requests=256),
    }
)
