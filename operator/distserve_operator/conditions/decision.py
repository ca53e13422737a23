"""What a pass does about the shape: which one, and whether children may be changed."""

from dataclasses import dataclass, replace
from typing import Final

from distserve_operator.api.deployment import DistServeDeployment, Mode, Wanted
from distserve_operator.api.shape import Placement
from distserve_operator.conditions.condition import State, Verdict
from distserve_operator.conditions.placement import placement_verdict, search_verdict
from distserve_operator.observed.recorded import RecordedPlan, Serving
from distserve_operator.observed.search import Answered, Search

NOT_PLACED: Final = Verdict(State.UNKNOWN, "NotPlaced", "nothing is changed while PlacementReady is not True")
PLAN_ONLY: Final = Verdict(State.UNKNOWN, "PlanOnly", "mode is Plan: nothing is made or changed, choose Apply to serve")


@dataclass(frozen=True, slots=True)
class Decision:
    """`verdict` is PlacementReady. `deployment` has the shape that is kept up, or was; None: there never was one.

    `untouched`: why no child is changed, in the words of the parts' conditions; None: they are.
    """

    verdict: Verdict
    deployment: DistServeDeployment | None
    untouched: Verdict | None = None


def decide(wanted: Wanted, search: Search | None, serving: Serving | None, fleet_digest: str) -> Decision:
    """`search` is None for a shape that is written in the spec and has nodes; `fleet_digest` of the present spec."""
    if isinstance(wanted.placement, Placement):
        deployment = wanted.placed(wanted.placement)
        shape = placement_verdict(deployment)
        if search is None or not shape.holds:
            return _placed(wanted, shape, deployment)
    assert search is not None
    verdict = search_verdict(wanted, search)
    plan = search.plan if isinstance(search, Answered) and search.plan.feasible else None
    if plan is None:
        return _keeping(wanted, verdict, serving, fleet_digest)
    if wanted.mode is Mode.PLAN:
        return Decision(verdict, _before(wanted, serving), PLAN_ONLY)
    return _found(wanted, verdict, plan, serving)


def _placed(wanted: Wanted, verdict: Verdict, deployment: DistServeDeployment) -> Decision:
    if not verdict.holds:
        return Decision(verdict, deployment, NOT_PLACED)
    return Decision(verdict, deployment, PLAN_ONLY if wanted.mode is Mode.PLAN else None)


def _found(wanted: Wanted, verdict: Verdict, plan: RecordedPlan, serving: Serving | None) -> Decision:
    """A last look at what was found: the record may be of a version that could run more."""
    if plan.placement is None:
        text = f"{plan.shape} was found, which this version cannot run: change the spec, so that it is searched anew"
        refused = Verdict(State.FALSE, "UnsupportedShape", text, permanent=True)
        return Decision(refused, _before(wanted, serving), NOT_PLACED)
    deployment = wanted.placed(plan.placement)
    shape = placement_verdict(deployment)
    return Decision(verdict, deployment) if shape.holds else Decision(shape, deployment, NOT_PLACED)


def _keeping(wanted: Wanted, verdict: Verdict, serving: Serving | None, fleet_digest: str) -> Decision:
    """There is no shape for this spec: what serves is kept up as long as it is of the same model, devices and bound."""
    deployment = _before(wanted, serving)
    if serving is None or deployment is None:
        return Decision(verdict, None, _nothing(wanted))
    told = replace(verdict, message=f"{verdict.message}; {serving.placement} keeps serving")
    same = serving.fleet_digest == fleet_digest and placement_verdict(deployment).holds
    return Decision(told, deployment, _nothing(wanted) if wanted.mode is Mode.PLAN or not same else None)


def _nothing(wanted: Wanted) -> Verdict:
    return PLAN_ONLY if wanted.mode is Mode.PLAN else NOT_PLACED


def _before(wanted: Wanted, serving: Serving | None) -> DistServeDeployment | None:
    return None if serving is None else wanted.placed(serving.placement)
