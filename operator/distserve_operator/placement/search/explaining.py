"""Why a plan is what it is: figures and sentences for people."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distserve_operator.placement.answer import Candidate, Counted, KvMove, Plan, Served
from distserve_operator.placement.bounds import largest_batch, step_seconds
from distserve_operator.placement.goodput import against_targets, served
from distserve_operator.placement.memory import block_bytes_per_device, weight_bytes_per_device
from distserve_operator.placement.question import Question
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.serving import decode_rules, link_of
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool

TIE = 0.05  # relative difference below which two kinds of fleet are called equal
_USUAL_CHUNK = 1024  # tokens, where the best colocated fleet has none
_OVERLAP_STEP = 0.05
_FREED = 1.2  # by so much more goodput is the link to blame for what is missing
_PAST = 1.05  # the rate at which the binding target shows, as a multiple of goodput


def explain(
    question: Question,
    evaluator: Evaluator,
    verifier: Verifier,
    chosen: Candidate,
    others: Sequence[Candidate],
    counted: Counted,
    feasible: bool,
) -> Plan:
    """The plan for the chosen candidate."""
    rate = question.rate if question.rate is not None and feasible else chosen.goodput
    compared = compare(question, chosen, others)
    return Plan(
        feasible=feasible,
        chosen=chosen,
        served=verifier.watch(chosen.placement, rate),
        kv=kv_move(question, evaluator, chosen.placement),
        memory_per_device=memory(question, chosen.placement),
        binding=binding(question, evaluator, chosen),
        reasons=tuple(_reasons(question, compared, feasible)),
        runner_up=compared.runner_up,
        runner_up_lost=compared.runner_up_lost,
        best_disaggregated=compared.split,
        best_colocated=compared.both,
        flip_overlap=flip_overlap(question, evaluator, compared.split, compared.both),
        top=compared.ranked,
        counted=counted,
        source=question.latency.source,
    )


def explain_copies(
    question: Question, plan: Plan, chosen: Candidate, others: Sequence[Candidate], served: Served | None, cells: int
) -> Plan:
    """The plan of one cell as that of a whole fleet of so many, with the same candidates in the counts of fleets."""
    assert plan.chosen is not None
    compared = compare(question, chosen, others)
    return replace(
        plan,
        chosen=chosen,
        served=served,
        binding=f"{plan.binding} (each of {cells} equal parts)",
        reasons=tuple(_reasons(question, compared, plan.feasible, f"{cells} equal parts of {plan.chosen.placement}")),
        runner_up=compared.runner_up,
        runner_up_lost=compared.runner_up_lost,
        best_disaggregated=compared.split,
        best_colocated=compared.both,
        top=compared.ranked,
    )


@dataclass(frozen=True, slots=True)
class Compared:
    """The chosen candidate beside others: `ranked` are all of them, itself first, then the best of the others."""

    chosen: Candidate
    ranked: tuple[Candidate, ...]
    split: Candidate | None
    both: Candidate | None
    runner_up: Candidate | None
    runner_up_lost: str


def compare(question: Question, chosen: Candidate, others: Sequence[Candidate]) -> Compared:
    """Rank the candidates by what the question asks for."""
    ranked = (chosen, *sorted(others, key=lambda one: _rank(question, one)))
    runner_up = next(iter(ranked[1:]), None)
    return Compared(
        chosen,
        ranked,
        next((one for one in ranked if isinstance(one.placement, Disaggregated)), None),
        next((one for one in ranked if isinstance(one.placement, Colocated)), None),
        runner_up,
        _why_lost(question, chosen, runner_up) if runner_up else "",
    )


def _rank(question: Question, one: Candidate) -> tuple[float, float]:
    return one.placement.devices if question.rate is not None else 0, -one.per_device


def kv_move(question: Question, evaluator: Evaluator, placement: Placement) -> KvMove | None:
    """The KV of the mean request that moves, on the link it takes; None where all stay."""
    demand = evaluator.demand
    if not isinstance(placement, Disaggregated) or demand.moving == 0:
        return None
    link = link_of(question, placement)
    moved = question.model.kv_bytes_per_token * demand.moved / demand.moving
    return KvMove(moved, moved / link.bytes_per_second, link.name)


def with_free_links(question: Question) -> Question:
    """The same question, were KV moved in no time."""
    device = replace(question.device, node_link=math.inf, network_link=math.inf)
    return replace(question, device=device, network_bytes_per_second=None)


def memory(question: Question, placement: Placement) -> dict[str, float]:
    """Bytes of weights and of KV cache on one device of each role."""
    roles = (
        {"colocated": placement.pool}
        if isinstance(placement, Colocated)
        else {
            "prefill": placement.prefill,
            "decode": placement.decode,
        }
    )
    found = {}
    for role, pool in roles.items():
        weights = weight_bytes_per_device(question.model, pool.shape)
        found[f"{role}Weights"] = weights
        found[f"{role}Kv"] = _kv_bytes(question, pool)
    return found


def _kv_bytes(question: Question, pool: Pool) -> float:
    blocks = decode_rules(question, pool).blocks
    return float(blocks * block_bytes_per_device(question.model, pool.shape))


def binding(question: Question, evaluator: Evaluator, chosen: Candidate) -> str:
    """What keeps the goodput from being higher: the target that most requests miss a little above it, and why."""
    freed = chosen.goodput * _FREED
    if _link_binds(question, evaluator, chosen.placement, freed):
        kv = kv_move(question, evaluator, chosen.placement)
        assert kv is not None  # else there is nothing that a link could slow down
        return (
            f"Link: the KV of a request takes {kv.seconds * 1e3:.3g} ms on the {kv.link}; "
            f"were it there at once, {freed:.3g} req/s would be held"
        )
    rate = chosen.goodput * _PAST
    past = served(evaluator.watch(chosen.placement, rate), rate, question)
    name, _, target = max(against_targets(question.slo, past), key=lambda one: one[1] / one[2])
    if name == "TPOT" and _memory_binds(question, evaluator, chosen.placement):
        return "Memory: the KV cache of the decode instances is full before TPOT is reached"
    return f"{name}: above {chosen.goodput:.3g} req/s too many requests miss {target * 1e3:g} ms"


def _link_binds(question: Question, evaluator: Evaluator, placement: Placement, rate: float) -> bool:
    """Whether a fleet that misses its targets at a rate would meet them, were KV moved in no time."""
    if not isinstance(placement, Disaggregated) or evaluator.passes(placement, rate):
        return False
    return Evaluator(with_free_links(question), evaluator.path).passes(placement, rate)


def _memory_binds(question: Question, evaluator: Evaluator, placement: Placement) -> bool:
    pool = placement.pool if isinstance(placement, Colocated) else placement.decode
    rules = decode_rules(question, pool)
    step = step_seconds(rules, evaluator.demand, largest_batch(rules, evaluator.demand))
    return step < question.slo.tpot * 0.9


def flip_overlap(
    question: Question, evaluator: Evaluator, split: Candidate | None, both: Candidate | None
) -> float | None:
    """The chunk overlap at which chunked colocation becomes as good per device as disaggregation.

    -1: a chunk costs twice its own time beside a decode step, 0: its own time, 1: nothing. None when no overlap in
    between changes who wins, or one of the two has no goodput.
    """
    if split is None or both is None or not isinstance(both.placement, Colocated):
        return None
    chunked = replace(both.placement, chunk=both.placement.chunk or _USUAL_CHUNK)
    rate = split.per_device * chunked.devices

    def colocation_wins(overlap: float) -> bool:
        latency = replace(question.latency, overlap=overlap)
        return Evaluator(replace(question, latency=latency), evaluator.path).passes(chunked, rate)

    low, high = -1.0, 1.0
    if colocation_wins(low) or not colocation_wins(high):
        return None
    while high - low > _OVERLAP_STEP:
        middle = (low + high) / 2
        low, high = (low, middle) if colocation_wins(middle) else (middle, high)
    return round(high, 3)


def _reasons(question: Question, compared: Compared, feasible: bool, parts: str | None = None) -> list[str]:
    """Why the chosen one, and how the two kinds of fleet compare. `parts`: what the whole fleet is made of."""
    sentences = [] if question.rule == "paper" else [_choice(question, compared.chosen, feasible, parts)]
    if compared.split is not None and compared.both is not None:
        sentences.append(_verdict(compared.split, compared.both))
    return sentences if parts is None else [*sentences, f"{parts} each"]


def _choice(question: Question, chosen: Candidate, feasible: bool, parts: str | None) -> str:
    """What the joint search found the chosen one to be."""
    placement = chosen.placement
    if question.rate is None:
        return f"{placement} has the best goodput per device: {chosen.per_device:.3g} req/s"
    if not feasible:
        return (
            f"the best fleet that was found on {question.inventory.devices} devices holds {chosen.goodput:.3g} req/s, "
            f"{question.rate:g} req/s were asked for"
        )
    if parts is None:
        return (
            f"{placement}: no fleet with fewer than its {placement.devices} devices was found to hold "
            f"{question.rate:g} req/s"
        )
    return (
        f"{placement}: its {placement.devices} devices are the fewest that were found to hold "
        f"{question.rate:g} req/s in equal parts; unequal ones might do with some fewer"
    )


def _verdict(split: Candidate, both: Candidate) -> str:
    ratio = split.per_device / both.per_device
    figures = f"{split.per_device:.3g} against {both.per_device:.3g} req/s per device"
    if abs(ratio - 1) < TIE:
        return f"disaggregated and colocated tie: they differ by less than {100 * TIE:.0f} % ({figures})"
    if ratio > 1:
        return f"disaggregation gives {ratio:.2f} times the goodput per device of colocation ({figures})"
    return f"colocation gives {1 / ratio:.2f} times the goodput per device of disaggregation ({figures})"


def _why_lost(question: Question, chosen: Candidate, other: Candidate) -> str:
    if question.rate is not None and other.placement.devices > chosen.placement.devices:
        return f"it takes {other.placement.devices} devices instead of {chosen.placement.devices}"
    if other.per_device < chosen.interval[0] / chosen.placement.devices:
        return f"its goodput per device is {100 * (1 - other.per_device / chosen.per_device):.1f} % lower"
    if other.per_device < chosen.per_device:
        return "a tie: the difference lies within the interval, and goes to the higher figure"
    return f"a tie: {chosen.placement} is {_advantage(chosen.placement, other.placement)}"


def _advantage(chosen: Placement, other: Placement) -> str:
    if isinstance(chosen, Colocated) and isinstance(other, Disaggregated):
        return "simpler, since it moves no KV"
    return "larger" if chosen.devices > other.devices else "the simpler of the two"
