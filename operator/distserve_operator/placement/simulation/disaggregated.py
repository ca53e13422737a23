"""Prefill and decode on instances of their own: arrivals, batch starts and ends, pulls, changes of decode batches."""

from distserve_operator.placement.simulation import decoding, judging, prefilling
from distserve_operator.placement.simulation.blocks import blocks_of
from distserve_operator.placement.simulation.clock import soonest
from distserve_operator.placement.simulation.compiling import compiled
from distserve_operator.placement.simulation.lists import NOBODY, pop
from distserve_operator.placement.simulation.state import (
    NEVER,
    DecodeRules,
    DecodeState,
    LinkRules,
    PrefillRules,
    PrefillState,
    Requests,
    Targets,
    Totals,
)


@compiled
def run(
    prefill_rules: PrefillRules,
    decode_rules: DecodeRules,
    link: LinkRules,
    targets: Targets,
    prefill: PrefillState,
    decode: DecodeState,
    requests: Requests,
    totals: Totals,
) -> None:
    """Simulate until all judged requests are done, or it is clear that too many fail.

    Without prefill instances requests arrive with their first token; without decode instances they end with it.
    """
    coming = 0
    while not judging.decided(targets, totals):
        arrival = requests.arrival[coming] if coming < len(requests.arrival) else NEVER
        change = soonest(decode.due, decode_rules.instances)
        pull = soonest(decode.pull_due, decode_rules.instances)
        end = soonest(prefill.exit_due, prefill_rules.instances)
        start = soonest(prefill.start_due, prefill_rules.instances)
        now = min(arrival, decode.due[change], decode.pull_due[pull], prefill.exit_due[end], prefill.start_due[start])
        if now == NEVER:
            return
        if decode.due[change] == now:
            decoding.boundary(decode_rules, link, decode, prefill, requests, targets, totals, change)
        elif decode.pull_due[pull] == now:
            request = decoding.pulled(decode, requests, pull)
            decoding.leave_home(prefill, requests, request, now)
        elif prefill.exit_due[end] == now:
            for _ in range(prefilling.ended(prefill_rules, prefill, end)):
                request = pop(prefill.flight, requests.following, end)
                prefill.queued[end] -= requests.prompt[request]
                judging.first_token(requests, targets, totals, request, now)
                _hand_over(prefill_rules, decode_rules, link, targets, prefill, decode, requests, totals, request, now)
        elif prefill.start_due[start] == now:
            prefilling.start(prefill_rules, prefill, requests, start)
        else:
            _arrive(prefill_rules, decode_rules, link, targets, prefill, decode, requests, totals, coming)
            coming += 1


@compiled
def _arrive(
    prefill_rules: PrefillRules,
    decode_rules: DecodeRules,
    link: LinkRules,
    targets: Targets,
    prefill: PrefillState,
    decode: DecodeState,
    requests: Requests,
    totals: Totals,
    request: int,
) -> None:
    now = requests.arrival[request]
    whole = requests.prompt[request] + requests.output[request]
    too_long = decode_rules.instances > 0 and blocks_of(whole) > decode_rules.blocks
    if prefill_rules.instances > 0 and blocks_of(requests.prompt[request]) > prefill_rules.blocks:
        too_long = True
    if too_long:
        judging.refused(requests, targets, totals, request)
    elif prefill_rules.instances > 0:
        prefilling.receive(prefill_rules, prefill, requests, totals, request, now)
    else:
        requests.home[request] = NOBODY
        judging.first_token(requests, targets, totals, request, now)
        _hand_over(prefill_rules, decode_rules, link, targets, prefill, decode, requests, totals, request, now)


@compiled
def _hand_over(
    prefill_rules: PrefillRules,
    decode_rules: DecodeRules,
    link: LinkRules,
    targets: Targets,
    prefill: PrefillState,
    decode: DecodeState,
    requests: Requests,
    totals: Totals,
    request: int,
    now: float,
) -> None:
    """After its first token a request is done, or it waits for the least loaded decode instance of its unit."""
    if requests.output[request] == 1 or decode_rules.instances == 0:
        decoding.leave_home(prefill, requests, request, now)
        judging.last_token(requests, targets, totals, request, now)
        return
    unit = 0
    if prefill_rules.instances > 0:
        unit = requests.home[request] * link.units // prefill_rules.instances
    size = decode_rules.instances // link.units
    if prefill_rules.instances > 0:
        one = decoding.choose(decode, totals, unit * size, (unit + 1) * size)
    else:
        one = decoding.choose(decode, totals, 0, decode_rules.instances)
    decoding.receive(decode, requests, one, request, now)
