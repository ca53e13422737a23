"""A decode step that carries a chunk of a prompt takes what the law of chunks says, with any overlap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distserve_operator.placement.latency.law import DecodePlane, PrefillPlane, StepLaw
from distserve_operator.placement.latency.prediction import chunk_seconds, context_seconds, prefill_seconds
from distserve_operator.placement.simulation.running import Mixed, simulate
from distserve_operator.placement.simulation.state import DecodeRules, MixedRules, Targets
from distserve_operator.placement.workload.path import Path

STEP = 0.01
LAW = StepLaw((PrefillPlane(0.02, 1e-4, 3e-8), PrefillPlane(0.0, 2e-4, 0.0)), (DecodePlane(STEP, 1e-6, 0.0),))
PLANES = np.array([[one.fixed, one.per_token, one.per_square] for one in LAW.prefill])
CHUNK = 100
SOON = 1e-3  # while the first request's prompt is computed
TARGETS = Targets(9e9, 9e9, 9e9, 0.0, 0.0, 0, 2, 2, 0.1, 0, joint=True)


@given(st.floats(0, 1), st.integers(1, CHUNK), st.integers(0, 5))
def test_a_prompt_in_pieces_takes_a_step_and_its_own_time_for_each(overlap: float, last: int, whole: int) -> None:
    """One request decodes while the other one's prompt goes by in `whole` full chunks and a last one."""
    budget = CHUNK + 1  # the one that decodes has a token of it
    prompts = MixedRules(PLANES, budget, chunked=True, overlap=overlap, context_seconds=context_seconds(LAW))
    decode = DecodeRules(np.array([[STEP, 0.0, 0.0]]), 1, 1, 64, 1000, 0)
    path = Path(np.array([0.0, SOON]), np.array([1, CHUNK * whole + last]), np.array([30, 2]))
    seen = simulate(Mixed(prompts, decode), path, 1.0, TARGETS)
    begun = prefill_seconds(LAW.prefill, 1, 1)
    chunks = [(CHUNK * place, CHUNK) for place in range(whole)] + [(CHUNK * whole, last)]
    steps = [STEP + (1 - overlap) * chunk_seconds(LAW, *chunk) for chunk in chunks]
    assert seen.ttft.tolist() == pytest.approx([begun, begun + sum(steps) - SOON])
    assert seen.gap[0] == pytest.approx(max(steps))
