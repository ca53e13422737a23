"""PlacementReady: whether there is a shape, and whether it can be served at all."""

from collections.abc import Iterable

from distserve_operator.api.capability import WORKERS_TEXT
from distserve_operator.api.deployment import Cluster, DistServeDeployment, Mode, Wanted
from distserve_operator.conditions.condition import State, Verdict
from distserve_operator.conditions.parallelism import cut_problem, known_model
from distserve_operator.observed.recorded import RecordedPlan
from distserve_operator.observed.search import Answered, NoNode, Search, SearchFailed, Unanswerable


def placement_verdict(deployment: DistServeDeployment) -> Verdict:
    """False when no pod may be made for this shape."""
    return _unsupported_shape(deployment) or _too_many_devices(deployment) or _placed(deployment)


def search_verdict(wanted: Wanted, search: Search) -> Verdict:
    """Of a shape that is not settled: True when there is an answer of the search that holds the targets."""
    match search:
        case Unanswerable(reason, message):
            return Verdict(State.FALSE, reason, message, permanent=True)
        case NoNode(message):
            return Verdict(State.FALSE, "NotEnoughDevices", message)
        case SearchFailed(message, again_seconds):
            return Verdict(State.FALSE, "SearchFailed", f"{message}; it is tried again in {again_seconds:.0f} s")
        case Answered(plan):
            return _found(wanted, plan) if plan.feasible else _infeasible(wanted, plan)
    return Verdict(State.UNKNOWN, "Searching", "the shape for this spec is being searched")


def _unsupported_shape(deployment: DistServeDeployment) -> Verdict | None:
    model = known_model(deployment.model.uri)
    if model is None:
        return None
    found = [
        f"placement.{role}: {problem}"
        for role, shape in deployment.placement.shapes.items()
        if (problem := cut_problem(model, shape)) is not None
    ]
    return Verdict(State.FALSE, "UnsupportedShape", "; ".join(found), permanent=True) if found else None


def _too_many_devices(deployment: DistServeDeployment) -> Verdict | None:
    wanted, most = deployment.placement.devices, deployment.cluster.max_devices
    if wanted <= most:
        return None
    text = f"the shape {deployment.placement} takes {wanted} devices but cluster.maxDevices is {most}"
    return Verdict(State.FALSE, "TooManyDevices", text, permanent=True)


def _placed(deployment: DistServeDeployment) -> Verdict:
    wanted = deployment.placement.devices
    return Verdict(State.TRUE, "Manual", f"{deployment.placement} takes {_share(wanted, deployment.cluster)}")


def _found(wanted: Wanted, plan: RecordedPlan) -> Verdict:
    takes = f"{plan.shape} takes {_share(plan.devices, wanted.cluster)}"
    text = _joined([takes, _figures(plan), *plan.reasons, plan.binding, _bounds(wanted)])
    return Verdict(State.TRUE, "Planned", text)


def _infeasible(wanted: Wanted, plan: RecordedPlan) -> Verdict:
    """Nobody but a person can help when the spec itself is the bound; otherwise devices may come free."""
    best = f"the best is {plan.shape}: {_figures(plan)}" if plan.shape else ""
    nodes = f"free devices on nodes: {plan.inventory}"
    text = _joined([*plan.reasons, plan.binding, best, nodes, _bounds(wanted)])
    return Verdict(State.FALSE, plan.outcome, text, permanent=plan.bound_by_spec(wanted.cluster.max_devices))


def _figures(plan: RecordedPlan) -> str:
    goodput = f"goodput {plan.goodput} req/s, {plan.goodput_per_device} per device"
    met = "" if plan.attainment_percent is None else f", {plan.attainment_percent} % of requests meet all targets"
    return goodput + met


def _bounds(wanted: Wanted) -> str:
    """What was left out of the search, so that nobody takes the answer for the best of all."""
    if wanted.mode is Mode.PLAN:
        return ""
    return f"searched among what can be made: {WORKERS_TEXT} (mode Plan searches all shapes)"


def _share(devices: int, cluster: Cluster) -> str:
    return f"{devices} of at most {cluster.max_devices} {cluster.device_type} devices"


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(part for part in parts if part)
