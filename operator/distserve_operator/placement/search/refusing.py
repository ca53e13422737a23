"""Plans for what cannot be had: no instance fits, or no placement holds the targets at any rate; with what binds."""

from collections.abc import Iterator
from dataclasses import replace

from distserve_operator.placement.answer import Candidate, Counted, Plan, Served
from distserve_operator.placement.goodput import against_targets, served
from distserve_operator.placement.memory import shape_problem
from distserve_operator.placement.question import Question
from distserve_operator.placement.rates import LOWEST, rate_at
from distserve_operator.placement.search.binding import kv_move, with_free_links
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.explaining import memory, plural
from distserve_operator.placement.search.spaces import Anywhere, Both, InsideNodes, families, shapes
from distserve_operator.placement.shape import Placement, Shape

_Idle = tuple[float, Placement, Served]  # with how far the worst target is missed


def nothing_fits(question: Question) -> Plan:
    """No instance fits the devices at all, or no fleet of the kind that was asked for."""
    devices, degrees = question.inventory.devices, sorted(question.latency.laws)
    if devices == 0:
        return _empty(question, "Devices: there are no free devices")
    where = f"{plural(devices, 'free device')} on {plural(question.inventory.nodes, 'node')}"
    if shapes(question):
        return _empty(
            question, f"Devices: no prefill instance fits {where} beside a decode instance, as disaggregation takes"
        )
    widest = min(devices, max(question.inventory.free))
    if degrees[0] > widest:
        known = ", ".join(map(str, degrees))
        reason = f"latencies are known for tp {known} alone ({question.latency.source})"
        return _empty(question, f"Devices: no node has {degrees[0]} free devices for tp {degrees[0]}", reason)
    problems = [problem for tp in degrees if (problem := _problem(question, tp, widest)) is not None]
    return _empty(question, f"Memory: no instance fits {where}", *problems)


def _problem(question: Question, tp: int, widest: int) -> str | None:
    if tp > widest:
        return f"TP{tp}: no node has so many free devices"
    return shape_problem(question.model, question.device, Shape(tp, 1))


def too_few(question: Question, plan: Plan | None, wanted: Placement) -> Plan:
    """What a rule asks for is more than there is; `plan` is of the largest such fleet that fits, if one does."""
    load = "" if question.rate is None else f" for {question.rate:g} req/s"
    takes = f"the paper's rule takes {wanted.devices} devices{load} ({wanted})"
    binding = f"Devices: {takes}, which do not fit the {question.inventory.devices} that are free"
    if plan is None:
        return _empty(question, binding, "no smaller fleet of the same proportions fits; the joint rule tries others")
    return replace(plan, feasible=False, binding=binding)


def nothing_holds(question: Question, evaluator: Evaluator, counted: Counted, judged: int) -> Plan:
    """No placement was found to hold the targets at any rate: the best that can be had, on idle instances; what binds.

    `judged`: fleets that the search took to hold them, and that did not on fresh paths.
    """
    found = idle(question, evaluator)
    if not found:
        return nothing_fits(question)
    worst, placement, seen = min(found, key=lambda one: (-one[2].attainment, one[0]))
    missed, kv = _missed(question, seen), kv_move(question, evaluator, placement)
    reasons = missed or [_out_of_reach(judged)]
    if missed and worst > 1 and kv is not None and _one_idle(with_free_links(question), evaluator, placement)[0] <= 1:
        reasons = [f"Link: the KV of a request takes {kv.seconds * 1e3:.4g} ms on the {kv.link}", *reasons]
    return replace(
        _empty(question, *reasons),
        chosen=Candidate(placement, 0.0, (0.0, 0.0)),
        served=seen,
        kv=kv,
        memory_per_device=memory(question, placement),
        counted=counted,
    )


def _missed(question: Question, seen: Served) -> list[str]:
    """Which targets an idle fleet misses; none if enough requests meet them."""
    slo = question.slo
    if seen.attainment >= slo.attainment:
        return []
    return [
        f"{name}: even on an idle fleet its 90th percentile is {seconds * 1e3:.4g} ms, not {target * 1e3:g} ms"
        for name, seconds, target in against_targets(slo, seen)
        if seconds > target
    ] or [f"Attainment: {seen.attainment * 100:.4g} % on an idle fleet, not {slo.attainment * 100:g} %"]


def _out_of_reach(judged: int) -> str:
    """What is known where an idle fleet meets the targets: which fleets were tried, down to the lowest rate."""
    lowest = f"at {LOWEST:g} req/s for each device, the lowest rate that is looked at"
    if judged == 0:
        return f"Rate: an idle fleet meets the targets, but none was found to do so {lowest}"
    tried = plural(judged, "fleet")
    return f"Rate: an idle fleet meets the targets, but none that was tried on fresh paths ({tried}) does so {lowest}"


def idle(question: Question, evaluator: Evaluator) -> list[_Idle]:
    """One instance of every shape, for both phases, nearly without load; where the devices have room for it."""
    return [_one_idle(question, evaluator, placement) for placement in _smallest_fleets(question)]


def _smallest_fleets(question: Question) -> Iterator[Placement]:
    """Of every shape the fleet with one instance, or one of each phase; no more than there is room for."""
    met: set[Shape] = set()
    for family in families(question):
        placement = family.at((1, 1) if isinstance(family, Anywhere) else (1,))
        shape = placement.pools[0].shape
        same = all(pool.shape == shape and pool.replicas == 1 for pool in placement.pools)
        if same and shape not in met and _has_room(family, question):
            met.add(shape)
            yield placement


def _has_room(family: Anywhere | InsideNodes | Both, question: Question) -> bool:
    if isinstance(family, Anywhere):
        return family.fits((1, 1), question.inventory)
    return family.fits((1,), question.inventory)


def _one_idle(question: Question, evaluator: Evaluator, placement: Placement) -> _Idle:
    asked = Evaluator(question, evaluator.path)
    seen = served(asked.watch(placement, rate_at(0)), rate_at(0), question)
    return max(seconds / target for _, seconds, target in against_targets(question.slo, seen)), placement, seen


def _empty(question: Question, binding: str, *reasons: str) -> Plan:
    return Plan(
        feasible=False,
        chosen=None,
        served=None,
        kv=None,
        memory_per_device={},
        binding=binding,
        reasons=reasons,
        runner_up=None,
        runner_up_lost="",
        best_disaggregated=None,
        best_colocated=None,
        flip_overlap=None,
        top=(),
        counted=Counted(0, 0, 0),
        source=question.latency.source,
    )
