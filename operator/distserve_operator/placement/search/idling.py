"""Whether one instance of each phase, nearly without load, meets the targets: no count of its family does better."""

from distserve_operator.placement.rates import LOWEST
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.spaces import Both, Family
from distserve_operator.placement.shape import Pool, Shape


def meets_when_idle(evaluator: Evaluator, family: Family) -> bool:
    """Said leniently: what just fails in a short run may pass in a long one."""
    lenient = evaluator.lenient
    if isinstance(family, Both):
        return lenient.passes_briefly(family.at((1,)), LOWEST)
    prefill, decode = (Pool(_shape(role), 1) for role in (family.prefill, family.decode))
    return lenient.prefill_holds(prefill, LOWEST) and lenient.decode_holds(decode, LOWEST)


def _shape(role: Shape | Pool) -> Shape:
    return role.shape if isinstance(role, Pool) else role
