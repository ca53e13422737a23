"""One fixed placement from its counts: laid out on the nodes, or the reason why it cannot be."""

import math
from collections.abc import Iterator

from distserve_cli.planning.errors import BadInput
from distserve_operator.placement.question import Affinity, Question
from distserve_operator.placement.search.spaces import Anywhere, Both, InsideNodes
from distserve_operator.placement.shape import Colocated, Disaggregated, Pool, Shape

Numbers = tuple[float, ...]


def pool_of(numbers: Numbers) -> Pool:
    """Instances from tp, pp, replicas."""
    tp, pp, replicas = map(int, numbers)
    return Pool(Shape(tp, pp), replicas)


def disaggregated(question: Question, prefill: Pool, decode: Pool) -> Disaggregated:
    """Both pools on the nodes, KV inside them where the affinity allows it and there is room. Raises BadInput."""
    if question.affinity is not Affinity.HIGH:
        units = math.gcd(prefill.replicas, decode.replicas)
        for family in _units(prefill, decode, units):
            if family.fits((units,), question.inventory):
                return family.at((units,))
    anywhere = Anywhere(prefill.shape, decode.shape)
    counts = (prefill.replicas, decode.replicas)
    if question.affinity is not Affinity.LOW and anywhere.fits(counts, question.inventory):
        return anywhere.at(counts)
    raise _no_room(question, f"{prefill} -> {decode}", prefill.devices + decode.devices)


def alone(question: Question, prefill: Pool | None, decode: Pool | None) -> Disaggregated:
    """One phase without the other, to see what it can do; KV comes as from the same node. Raises BadInput."""
    pool = prefill or decode
    assert pool is not None
    _require_room(question, pool)
    nobody = Pool(pool.shape, 0)
    return Disaggregated(prefill or nobody, decode or nobody, segments=1)


def colocated(question: Question, pool: Pool, chunk: int | None) -> Colocated:
    """One pool for both phases. Raises BadInput."""
    _require_room(question, pool)
    return Colocated(pool, chunk)


def _units(prefill: Pool, decode: Pool, units: int) -> Iterator[InsideNodes]:
    """Ways to cut a unit into segments, the fewest first."""
    one_prefill = Pool(prefill.shape, prefill.replicas // units)
    one_decode = Pool(decode.shape, decode.replicas // units)
    stages = math.gcd(prefill.shape.pp, decode.shape.pp)
    for segments in range(1, stages + 1):
        if stages % segments == 0:
            yield InsideNodes(one_prefill, one_decode, segments)


def _require_room(question: Question, pool: Pool) -> None:
    if not Both(pool.shape, None).fits((pool.replicas,), question.inventory):
        raise _no_room(question, str(pool), pool.devices)


def _no_room(question: Question, placement: str, devices: int) -> BadInput:
    free, affinity = question.inventory.free, question.affinity
    return BadInput(
        f"{placement} takes {devices} devices and does not fit {len(free)} node{'s' * (len(free) > 1)} "
        f"of {max(free)} with affinity {affinity}: raise --nodes or --gpus-per-node, or choose fewer devices"
    )
