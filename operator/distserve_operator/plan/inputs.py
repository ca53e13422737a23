"""Digests of what an answer depends on, so that an unchanged question is not asked twice.

Free devices are left out: pods of our own and of others come and go, and a plan that holds its targets is not to change
with them. So is the operator's version: an upgrade alone rolls nothing (B26).
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from distserve_operator.api.deployment import Wanted
from distserve_operator.api.targets import Targets, Tokens

ENGINE: Final = "distserve"  # whose step times are asked for
_DIGITS: Final = 16


def inputs_digest(wanted: Wanted, targets: Targets) -> str:
    """Of everything in the spec that the answer depends on."""
    return _digest(_fleet(wanted) | _question(wanted, targets))


def fleet_digest(wanted: Wanted) -> str:
    """Of the model and the devices: for others a shape is good for nothing."""
    return _digest(_fleet(wanted))


def _fleet(wanted: Wanted) -> dict[str, Any]:
    model, cluster = wanted.model, wanted.cluster
    return {
        "uri": model.uri,
        "dtype": model.dtype,
        "maxModelLength": model.max_model_length,
        "deviceType": cluster.device_type,
        "coresPerDevice": cluster.cores_per_device,
        "memoryPerDevice": cluster.memory_per_device,
    }


def _question(wanted: Wanted, targets: Targets) -> dict[str, Any]:
    slo, workload = targets.slo, targets.workload
    return {
        "mode": wanted.mode,  # each searches among other shapes
        "engine": ENGINE,
        "maxDevices": wanted.cluster.max_devices,
        "affinity": wanted.cluster.affinity,
        "ttftMilliseconds": slo.ttft_milliseconds,
        "tpotMilliseconds": slo.tpot_milliseconds,
        "maxGapMilliseconds": slo.max_gap_milliseconds,
        "attainmentPercent": slo.attainment_percent,
        "requestsPerSecond": workload.requests_per_second,
        "inputTokens": _tokens(workload.input_tokens),
        "outputTokens": _tokens(workload.output_tokens),
    }


def _tokens(tokens: Tokens) -> list[int]:
    return [tokens.mean, tokens.variation_percent]


def _digest(inputs: Mapping[str, Any]) -> str:
    """Fields without a value do not count, so that a new one changes no digest by itself."""
    given = {name: value for name, value in inputs.items() if value is not None}
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:_DIGITS]
