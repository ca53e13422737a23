"""Prefill and decode on instances of their own: arrivals, batch starts and ends, pulls, changes of decode batches."""

from distserve_operator.placement.simulation import decoding, judging, prefilling
from distserve_operator.placement.simulation.blocks import blocks_of
from distserve_operator.placement.simulation.clock import soonest
from distserve_operator.placement.simulation.compiling import compiled
from distserve_operator.placement.simulation.lists import NOBODY, pop
from distserve_operator.placement.simulation.state import NEVER, Requests, SplitRules, SplitState, Targets, Totals


@compiled
def run(rules: SplitRules, targets: Targets, state: SplitState, requests: Requests, totals: Totals) -> None:
    """Simulate until all judged requests are done, or it is clear that too many fail.

    Without prefill instances requests arrive with their first token; without decode instances they end with it.
    """
    prefill, decode = state.prefill, state.decode
    coming = 0
    while not judging.decided(targets, totals):
        arrival = requests.arrival[coming] if coming < len(requests.arrival) else NEVER
        change = soonest(decode.due, rules.decode.instances)
        pull = soonest(decode.pull_due, rules.decode.instances)
        end = soonest(prefill.exit_due, rules.prefill.instances)
        start = soonest(prefill.start_due, rules.prefill.instances)
        now = min(arrival, decode.due[change], decode.pull_due[pull], prefill.exit_due[end], prefill.start_due[start])
        if now == NEVER:
            return
        if decode.due[change] == now:
            decoding.boundary(rules, state, requests, targets, totals, change)
        elif decode.pull_due[pull] == now:
            request = decoding.pulled(decode, requests, pull)
            decoding.leave_home(prefill, requests, request, now)
        elif prefill.exit_due[end] == now:
            _finish_batch(rules, state, requests, targets, totals, end, now)
        elif prefill.start_due[start] == now:
            prefilling.start(rules.prefill, prefill, requests, start)
        else:
            _arrive(rules, state, requests, targets, totals, coming)
            coming += 1


@compiled
def _arrive(
    rules: SplitRules, state: SplitState, requests: Requests, targets: Targets, totals: Totals, request: int
) -> None:
    now = requests.arrival[request]
    if _too_long(rules, requests, request):
        judging.refused(requests, targets, totals, request)
    elif rules.prefill.instances > 0:
        prefilling.receive(rules.prefill, state.prefill, requests, totals, request, now)
    else:
        requests.home[request] = NOBODY
        judging.first_token(requests, targets, totals, request, now)
        _hand_over(rules, state, requests, targets, totals, request, now)


@compiled
def _too_long(rules: SplitRules, requests: Requests, request: int) -> bool:
    """Whether an instance could not hold it: where it decodes to its end, and where it is read again at its longest."""
    whole = requests.prompt[request]
    if rules.decode.instances > 0:
        whole += requests.output[request]
        if blocks_of(whole) > rules.decode.blocks:
            return True
    return bool(rules.prefill.instances > 0 and blocks_of(whole) > rules.prefill.blocks)


@compiled
def _finish_batch(
    rules: SplitRules,
    state: SplitState,
    requests: Requests,
    targets: Targets,
    totals: Totals,
    one: int,
    now: float,
) -> None:
    """Prompts of a batch that has left the last stage have their first token, but for those that were put back."""
    for _ in range(prefilling.ended(rules.prefill, state.prefill, one)):
        request = pop(state.prefill.flight, requests.following, one)
        state.prefill.queued[one] -= requests.prompt[request] + requests.generated[request]
        if requests.ttft[request] == NEVER:
            judging.first_token(requests, targets, totals, request, now)
        _hand_over(rules, state, requests, targets, totals, request, now)


@compiled
def _hand_over(
    rules: SplitRules,
    state: SplitState,
    requests: Requests,
    targets: Targets,
    totals: Totals,
    request: int,
    now: float,
) -> None:
    """After its first token a request is done, or it waits for the least loaded decode instance of its unit."""
    if requests.output[request] == 1 or rules.decode.instances == 0:
        decoding.leave_home(state.prefill, requests, request, now)
        judging.last_token(requests, targets, totals, request, now)
        return
    first, stop = 0, rules.decode.instances
    if rules.prefill.instances > 0:
        unit = requests.home[request] * rules.link.units // rules.prefill.instances
        size = rules.decode.instances // rules.link.units
        first, stop = unit * size, (unit + 1) * size
    one = decoding.choose(state.decode, totals, first, stop)
    decoding.receive(state.decode, requests, one, request, now)
