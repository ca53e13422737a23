"""Why a plan is what it is: figures and sentences for people."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from distserve_operator.placement.answer import Candidate, Counted, Plan, Served
from distserve_operator.placement.memory import block_bytes_per_device, weight_bytes_per_device
from distserve_operator.placement.question import Question
from distserve_operator.placement.search.binding import binding, kv_move
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.serving import decode_rules
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool

TIE = 0.05  # relative difference below which two kinds of fleet are called equal
_USUAL_CHUNK = 1024  # tokens, where the best colocated fleet has none
_OVERLAP_STEP = 0.05


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
        binding=binding(question, evaluator, verifier, chosen),
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
    elif question.only is None and question.rule == "joint":
        sentences.append(_missing(question, compared, feasible, parts))
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


def _missing(question: Question, compared: Compared, feasible: bool, parts: str | None) -> str:
    """That there is nothing to compare with, and how far was looked for it; of a part of a fleet that is not known."""
    kind = "disaggregated" if compared.split is None else "colocated"
    takes, looked_at = compared.chosen.placement.devices, question.inventory.devices
    if parts is not None:
        return f"no {kind} part was found on the devices that were looked at for a part"
    load = f"{question.rate:g} req/s" if question.rate is not None and feasible else "the targets"
    further = f", {looked_at / takes:.3g} times the plan's" if looked_at > takes else ""
    return f"no {kind} fleet was found to hold {load} on up to {plural(looked_at, 'device')}{further}"


def _verdict(split: Candidate, both: Candidate) -> str:
    ratio = split.per_device / both.per_device
    figures = f"{split.per_device:.3g} against {both.per_device:.3g} req/s per device"
    if abs(ratio - 1) < TIE:
        return f"disaggregated and colocated tie: they differ by less than {100 * TIE:.0f} % ({figures})"
    if ratio > 1:
        return f"disaggregation gives {ratio:.2f} times the goodput per device of colocation ({figures})"
    return f"colocation gives {1 / ratio:.2f} times the goodput per device of disaggregation ({figures})"


def plural(count: int, noun: str) -> str:
    """So many of what a noun says, such as "2 devices"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _why_lost(question: Question, chosen: Candidate, other: Candidate) -> str:
    lost, known = _lost(question, chosen, other), str(chosen.placement) == str(other.placement)
    if known and isinstance(other.placement, Disaggregated):
        return f"the same instances, but its KV {_way(other.placement)}: {lost}"
    return lost


def _lost(question: Question, chosen: Candidate, other: Candidate) -> str:
    if question.rate is not None and other.placement.devices > chosen.placement.devices:
        return f"it takes {other.placement.devices} devices instead of {chosen.placement.devices}"
    if other.per_device < chosen.interval[0] / chosen.placement.devices:
        return f"its goodput per device is {100 * (1 - other.per_device / chosen.per_device):.1f} % lower"
    if other.per_device < chosen.per_device:
        return "a tie: the difference lies within the interval, and goes to the higher figure"
    return f"a tie: {_advantage(chosen.placement, other.placement)}"


def _advantage(chosen: Placement, other: Placement) -> str:
    if isinstance(chosen, Disaggregated) and str(chosen) == str(other):
        return f"it is simpler if KV {_way(chosen)}"
    if isinstance(chosen, Colocated) and isinstance(other, Disaggregated):
        return f"{chosen} is simpler, since it moves no KV"
    return f"{chosen} is {'larger' if chosen.devices > other.devices else 'the simpler of the two'}"


def _way(placement: Disaggregated) -> str:
    if placement.segments is None:
        return "goes to any node"
    return f"stays inside nodes, in {plural(placement.units, 'part')} of {plural(placement.segments, 'segment')}"
