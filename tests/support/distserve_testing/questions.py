"""Questions to the placement search, on the devices and models of the paper."""

from typing import Any

from distserve_operator.placement.catalogue.devices import device
from distserve_operator.placement.catalogue.models import model_shape
from distserve_operator.placement.device import Inventory
from distserve_operator.placement.latency.choosing import latency_model
from distserve_operator.placement.question import Affinity, Question
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.arrivals import Poisson
from distserve_operator.placement.workload.choosing import choose_lengths
from distserve_operator.placement.workload.lengths import Lengths
from distserve_operator.placement.workload.workload import Workload

CHATBOT_13B = Slo(ttft=0.25, tpot=0.1)  # paper, table 1
CHATBOT_66B = Slo(ttft=2.5, tpot=0.15)


def question(
    model: str = "opt-13b",
    *,
    gpu: str = "A100-80GB",
    nodes: int = 1,
    per_node: int = 4,
    slo: Slo = CHATBOT_13B,
    lengths: Lengths | None = None,
    engine: str = "distserve",
    **others: Any,
) -> Question:
    """ShareGPT lengths and Poisson arrivals, KV inside nodes, unless told otherwise."""
    shape, kind = model_shape(model), device(gpu)
    workload = Workload(lengths or choose_lengths("sharegpt"), Poisson(), shape.positions)
    inventory = Inventory((per_node,) * nodes, per_node * nodes)
    settings = {"affinity": Affinity.LOW} | others
    return Question(shape, kind, inventory, latency_model(shape, kind, engine), workload, slo, **settings)
