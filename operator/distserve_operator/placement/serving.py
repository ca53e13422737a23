"""A placement as the simulation sees it: rules of its instances from the latency law, the memory and the links."""

from dataclasses import dataclass

import numpy as np

from distserve_operator.placement.latency.law import LatencyModel, StepLaw
from distserve_operator.placement.latency.prediction import context_seconds
from distserve_operator.placement.latency.saturation import saturating_tokens
from distserve_operator.placement.memory import capacity_blocks
from distserve_operator.placement.question import Question
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool
from distserve_operator.placement.simulation.running import Fleet, Mixed
from distserve_operator.placement.simulation.state import (
    DecodeRules,
    LinkRules,
    MixedRules,
    PrefillRules,
    SplitRules,
    Table,
)
from distserve_operator.placement.spreading import link_share


def fleet_of(question: Question, placement: Placement) -> Fleet:
    """What to simulate for a placement."""
    if isinstance(placement, Colocated):
        return Mixed(mixed_rules(question, placement), decode_rules(question, placement.pool))
    prefill, decode = prefill_rules(question, placement.prefill), decode_rules(question, placement.decode)
    return SplitRules(prefill, decode, link_rules(question, placement))


def prefill_rules(question: Question, pool: Pool) -> PrefillRules:
    """Prefill instances of a pool."""
    latency = question.latency
    law = latency.laws[pool.shape.tp]
    return PrefillRules(
        prefill_planes(law),
        pool.replicas,
        pool.shape.pp,
        latency.hop if pool.shape.pp > 1 else 0.0,
        prefill_tokens(latency, law),
        latency.rules.prefill_requests,
        capacity_blocks(question.model, question.device, pool.shape),
    )


def decode_rules(question: Question, pool: Pool) -> DecodeRules:
    """Decode instances of a pool; a trip round the pipeline has a hop for every stage."""
    latency = question.latency
    blocks = capacity_blocks(question.model, question.device, pool.shape)
    hops = latency.hop * pool.shape.pp if pool.shape.pp > 1 else 0.0
    return DecodeRules(
        decode_planes(latency.laws[pool.shape.tp], hops),
        pool.replicas,
        pool.shape.pp,
        latency.rules.decode_requests,
        blocks,
        int(blocks * latency.rules.spare_blocks),
    )


def mixed_rules(question: Question, placement: Colocated) -> MixedRules:
    """How the instances of a colocated placement take prompts."""
    latency = question.latency
    law = latency.laws[placement.pool.shape.tp]
    chunked = placement.chunk is not None
    tokens = placement.chunk or colocated_tokens(latency, law)
    return MixedRules(prefill_planes(law), tokens, chunked, latency.overlap, context_seconds(law))


def prefill_tokens(latency: LatencyModel, law: StepLaw) -> int:
    """Tokens of one batch of a prefill instance."""
    return latency.rules.prefill_tokens or saturating_tokens(law)


def colocated_tokens(latency: LatencyModel, law: StepLaw) -> int:
    """Tokens of one batch of prompts that requests wait for which decode."""
    return latency.rules.colocated_tokens or prefill_tokens(latency, law)


def prefill_planes(law: StepLaw) -> Table:
    """Rows (fixed, per token, per squared length) in seconds, the host's part included."""
    return np.array([[p.fixed + law.host.per_batch, p.per_token, p.per_square] for p in law.prefill])


def decode_planes(law: StepLaw, hops: float) -> Table:
    """Rows (fixed, per token of context, per request) in seconds, the host's part included."""
    host = law.host
    return np.array(
        [[p.fixed + host.per_step + hops, p.per_context, p.per_request + host.per_step_request] for p in law.decode]
    )


@dataclass(frozen=True, slots=True)
class Link:
    """The way between one prefill and one decode instance."""

    name: str  # "node" or "network"
    bytes_per_second: float


def link_of(question: Question, placement: Disaggregated) -> Link:
    """The link that the KV takes: inside nodes with segments or where there is one node alone, else the network.

    Instances of tp devices use tp links of a node at once. A node has one network link each way.
    """
    device = question.device
    pools = [pool for pool in placement.pools if pool.replicas > 0]
    if placement.segments is not None or question.inventory.one_node:
        return Link("node", device.node_link * min(pool.shape.devices for pool in pools))
    network = question.network_bytes_per_second or device.network_link
    return Link("network", network * link_share(question.inventory, pools))


def link_rules(question: Question, placement: Disaggregated) -> LinkRules:
    """Seconds for each token of KV."""
    link = link_of(question, placement)
    seconds = question.model.kv_bytes_per_token / link.bytes_per_second
    return LinkRules(0.0, seconds, question.latency.rules.blocking_pulls, placement.units)
