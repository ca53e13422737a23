"""Prefill instances: FCFS, batches of up to L_m tokens, pipelines with bubbles, parked KV (paper, section 4.3).

A request that was put back comes again, with its prompt and the tokens it has.
"""

from distserve_operator.placement.simulation.blocks import blocks_of
from distserve_operator.placement.simulation.compiling import compiled
from distserve_operator.placement.simulation.lists import NOBODY, pop, push
from distserve_operator.placement.simulation.state import (
    NEVER,
    TURNS,
    PrefillRules,
    PrefillState,
    Requests,
    Table,
    Totals,
)


@compiled
def batch_seconds(planes: Table, tokens: float, squares: float) -> float:
    """Seconds of one prefill batch: the largest of the law's planes."""
    longest = 0.0
    for plane in range(planes.shape[0]):
        seconds = planes[plane, 0] + planes[plane, 1] * tokens + planes[plane, 2] * squares
        longest = max(longest, seconds)
    return longest


@compiled
def receive(
    rules: PrefillRules, state: PrefillState, requests: Requests, totals: Totals, request: int, now: float
) -> None:
    """A request goes to the instance with the shortest queue in tokens, of equal ones to the longest passed over."""
    best = 0
    for one in range(1, rules.instances):
        if (state.queued[one], state.turn[one]) < (state.queued[best], state.turn[best]):
            best = one
    totals.counts[TURNS] += 1
    state.turn[best] = totals.counts[TURNS]
    state.queued[best] += requests.prompt[request] + requests.generated[request]
    requests.home[request] = best
    push(state.queue, requests.following, best, request)
    _plan(rules, state, best, now)


@compiled
def start(rules: PrefillRules, state: PrefillState, requests: Requests, one: int) -> None:
    """Begin a batch if the first prompt has room; if not, the end of a pull tries again."""
    now = state.start_due[one]
    state.start_due[one] = NEVER
    size, tokens, squares = 0, 0, 0.0
    while state.queue.head[one] != NOBODY and size < rules.requests:
        request = state.queue.head[one]
        length = requests.prompt[request] + requests.generated[request]
        blocks = blocks_of(length)
        if (size > 0 and tokens + length > rules.tokens) or state.used[one] + blocks > rules.blocks:
            break
        pop(state.queue, requests.following, one)
        push(state.flight, requests.following, one, request)
        state.used[one] += blocks
        size += 1
        tokens += length
        squares += float(length) * float(length)
    if size > 0:
        _send_through(rules, state, one, now, size, batch_seconds(rules.planes, tokens, squares))
        _plan(rules, state, one, now)


@compiled
def ended(rules: PrefillRules, state: PrefillState, one: int) -> int:
    """The oldest batch in flight has left the last stage; returns how many requests it had."""
    now = state.exit_due[one]
    size = state.sizes[one, state.oldest[one]]
    state.oldest[one] = (state.oldest[one] + 1) % rules.pp
    state.batches[one] -= 1
    state.exit_due[one] = state.exits[one, state.oldest[one]] if state.batches[one] > 0 else NEVER
    _plan(rules, state, one, now)
    return int(size)


@compiled
def _plan(rules: PrefillRules, state: PrefillState, one: int, now: float) -> None:
    if state.queue.head[one] != NOBODY and state.batches[one] < rules.pp:
        state.start_due[one] = max(now, state.free_at[one, 0])


@compiled
def _send_through(rules: PrefillRules, state: PrefillState, one: int, now: float, size: int, seconds: float) -> None:
    """A batch enters a stage when it has left the one before and the batch ahead has left this one."""
    stage_seconds = seconds / rules.pp + rules.hop
    clock = now
    for stage in range(rules.pp):
        clock = max(clock, state.free_at[one, stage]) + stage_seconds
        state.free_at[one, stage] = clock
    place = (state.oldest[one] + state.batches[one]) % rules.pp
    state.exits[one, place] = clock
    state.sizes[one, place] = size
    state.batches[one] += 1
    state.exit_due[one] = state.exits[one, state.oldest[one]]
