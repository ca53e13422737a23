"""What the placement benchmarks ask."""

from dataclasses import dataclass, replace
from typing import Final

from distserve_operator.placement.catalogue.devices import device
from distserve_operator.placement.catalogue.models import model_shape
from distserve_operator.placement.device import Inventory
from distserve_operator.placement.latency.choosing import latency_model
from distserve_operator.placement.question import Affinity, FiniteWindow, Question
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.arrivals import Poisson
from distserve_operator.placement.workload.choosing import choose_lengths
from distserve_operator.placement.workload.workload import Workload

CHAT: Final = "sharegpt"
CODE: Final = "lognormal:171,0.6,98,0.6"  # HumanEval's means; spread assumed
SUMMARY: Final = "lognormal:1738,0.6,91,0.6"  # LongBench's means; spread assumed
MIXED: Final = "lognormal:760,0.7,190,1.2"


@dataclass(frozen=True, slots=True)
class Case:
    """A question by name; `reference_seconds`: CPU seconds of the published search on a machine of this kind."""

    name: str
    question: Question
    reference_seconds: float | None = None


def ask(
    model: str,
    nodes: int,
    per_node: int,
    slo: Slo,
    lengths: str = CHAT,
    affinity: Affinity = Affinity.LOW,
    gpu: str = "A100-80GB",
) -> Question:
    """A question about a whole cluster."""
    shape, kind = model_shape(model), device(gpu)
    workload = Workload(choose_lengths(lengths), Poisson(), shape.positions)
    inventory = Inventory((per_node,) * nodes, per_node * nodes)
    return Question(shape, kind, inventory, latency_model(shape, kind), workload, slo, affinity=affinity)


def published(name: str, question: Question, seconds: float) -> Case:
    """The published rule: 300 requests from an empty system, the paper's search."""
    return Case(f"{name}, N = 300", replace(question, rule="paper", window=FiniteWindow(300)), seconds)


CHAT_13B: Final = Slo(0.25, 0.1)
CHAT_66B: Final = Slo(2.5, 0.15)
CHAT_175B: Final = Slo(4.0, 0.2)


def speed_cases() -> list[Case]:
    """Searches whose CPU time is compared with the published code, and searches in steady state."""
    high = Affinity.HIGH
    return [
        published("OPT-13B 1x4 low", ask("opt-13b", 1, 4, CHAT_13B), 38),
        published("OPT-13B 1x8 low", ask("opt-13b", 1, 8, CHAT_13B), 200),
        published("OPT-66B 1x8 low", ask("opt-66b", 1, 8, CHAT_66B), 59),
        published("OPT-66B 4x8 low", ask("opt-66b", 4, 8, CHAT_66B), 350),
        published("OPT-66B 4x8 high", ask("opt-66b", 4, 8, CHAT_66B, affinity=high), 988),
        published("OPT-175B 4x8 low", ask("opt-175b", 4, 8, CHAT_175B), 568),
        Case("OPT-66B 4x8 low, steady", ask("opt-66b", 4, 8, CHAT_66B)),
        Case(
            "Llama-3.1-405B 8x8 H100, steady",
            ask("llama-3.1-405b", 8, 8, Slo(3.0, 0.1), MIXED, Affinity.AUTO, "H100-80GB"),
        ),
        Case(
            "Llama-3.1-8B 1x8 H100, steady",
            ask("llama-3.1-8b", 1, 8, Slo(0.3, 0.03), MIXED, Affinity.AUTO, "H100-80GB"),
        ),
    ]


def savings_cases() -> list[Case]:
    """The workloads of the paper's table 1 and one with a tight TPOT, at three rates, on 16 nodes of 8 A100s."""
    workloads = {
        "chatbot, OPT-13B": ask("opt-13b", 16, 8, CHAT_13B),
        "code completion, OPT-66B": ask("opt-66b", 16, 8, Slo(0.125, 0.2), CODE),
        "summarization, OPT-66B": ask("opt-66b", 16, 8, Slo(15.0, 0.15), SUMMARY),
        "tight TPOT, OPT-13B": ask("opt-13b", 16, 8, Slo(0.4, 0.04), "fixed:512,64"),
    }
    return [
        Case(f"{name}, {rate:g} req/s", replace(question, rate=rate))
        for name, question in workloads.items()
        for rate in (5.0, 20.0, 50.0)
    ]
