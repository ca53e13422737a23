"""L_m: the shortest prompt that saturates the device."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distserve_operator.placement.catalogue.devices import device
from distserve_operator.placement.catalogue.models import model_shape
from distserve_operator.placement.latency.choosing import latency_model
from distserve_operator.placement.latency.law import DecodePlane, PrefillPlane, StepLaw
from distserve_operator.placement.latency.saturation import SHARE, saturating_tokens, throughput

planes = st.builds(PrefillPlane, st.floats(1e-5, 1.0), st.floats(1e-7, 1e-2), st.floats(0, 1e-6) | st.just(0.0))
laws = st.lists(planes, min_size=1, max_size=3).map(lambda found: StepLaw(tuple(found), (DecodePlane(1.0, 0.0, 0.0),)))


@given(laws)
def test_one_token_less_does_not_saturate(law: StepLaw) -> None:
    tokens = saturating_tokens(law, most=500)
    enough = SHARE * max(throughput(law, length) for length in range(1, 501))
    assert throughput(law, tokens) >= enough
    assert tokens == 1 or throughput(law, tokens - 1) < enough


def test_opt_13b_on_an_a100_saturates_near_the_papers_512() -> None:
    law = latency_model(model_shape("OPT-13B"), device("A100-80GB")).laws[1]
    assert saturating_tokens(law) == pytest.approx(512, rel=0.1)


def test_steps_without_fixed_cost_saturate_at_once() -> None:
    law = StepLaw((PrefillPlane(0.0, 1e-4, 0.0),), (DecodePlane(1.0, 0.0, 0.0),))
    assert saturating_tokens(law) == 1


def test_a_fixed_step_is_never_saturated_by_less_than_its_share_of_the_longest_prompt() -> None:
    law = StepLaw((PrefillPlane(0.1, 0.0, 0.0),), (DecodePlane(1.0, 0.0, 0.0),))
    assert saturating_tokens(law, most=1000) == 900
