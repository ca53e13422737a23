"""Decode instances: continuous batching in whole steps, exact blocks, pulls when there is room (paper, section 4.3).

An instance looks at the world only at the end of a step. With pp stages the batch is cut into pp micro-batches of about
equal size that share the KV memory; a step then is one trip of all of them round the pipeline, as long as the slowest
one.
"""

import numpy as np

from distserve_operator.placement.simulation import finishing, judging, prefilling
from distserve_operator.placement.simulation.blocks import LAST, begun, blocks_of, growth, steps_that_fit
from distserve_operator.placement.simulation.compiling import compiled
from distserve_operator.placement.simulation.lists import NOBODY, pop, push, push_first
from distserve_operator.placement.simulation.state import (
    JOININGS,
    NEVER,
    PUT_BACK,
    REMEMBERED,
    TURNS,
    DecodeRules,
    DecodeState,
    LinkRules,
    PrefillState,
    Requests,
    SplitRules,
    SplitState,
    Targets,
    Totals,
)
from distserve_operator.placement.simulation.stepping import duration, steps_until, time_of


@compiled
def choose(state: DecodeState, totals: Totals, first: int, stop: int) -> int:
    """The least loaded of the instances `first` to `stop`; of equal ones the one whose last turn is longest ago."""
    best = first
    for one in range(first + 1, stop):
        if (state.load[one], state.used[one], state.turn[one]) < (state.load[best], state.used[best], state.turn[best]):
            best = one
    totals.counts[TURNS] += 1
    state.turn[best] = totals.counts[TURNS]
    return best


@compiled
def receive(state: DecodeState, requests: Requests, one: int, request: int, now: float) -> None:
    """A request waits for this instance from now on."""
    push(state.waiting, requests.following, one, request)
    state.load[one] += 1
    wake(state, one, now)


@compiled
def wake(state: DecodeState, one: int, now: float) -> None:
    """Have the instance look at the world at its first step boundary from `now` on."""
    if state.running[one] == 0:
        state.due[one] = max(now, state.now[one])
        state.due_steps[one] = 0
        return
    if state.due_steps[one] == 1 and now != state.now[one]:
        return  # it looks at the end of the step that it is in
    base, slope, lines = state.base[one], state.slope[one], state.lines[one]
    steps = 1  # while a pull blocks the instance sees nothing; a step follows before it looks again
    if now >= state.now[one]:
        steps = steps_until(base, slope, lines, now - state.now[one], state.due_steps[one])
    if steps < state.due_steps[one]:
        state.due_steps[one] = steps
        state.due[one] = state.now[one] + time_of(base, slope, lines, steps)


@compiled
def boundary(
    rules: SplitRules, both: SplitState, requests: Requests, targets: Targets, totals: Totals, one: int
) -> None:
    """The planned steps are done: requests leave, are put back, pulled and joined; the next steps are planned."""
    state = both.decode
    advance(rules.decode, state, one)
    let_go(state, requests, targets, totals, one)
    _send_back(rules, both, requests, totals, one)
    _admit(rules, both, requests, one)
    while state.ready.head[one] != NOBODY:
        join(state, requests, totals, one, pop(state.ready, requests.following, one))
    _send_back(rules, both, requests, totals, one)
    plan(rules.decode, state, requests, one)


@compiled
def let_go(state: DecodeState, requests: Requests, targets: Targets, totals: Totals, one: int) -> None:
    """Requests whose last step is done leave."""
    while state.running[one] > 0 and state.ends[one, 0] == state.steps[one]:
        request = _take_out(state, requests, one, 0)
        state.load[one] -= 1
        state.seats[one] -= 1
        judging.last_token(requests, targets, totals, request, state.now[one])


@compiled
def pulled(state: DecodeState, requests: Requests, one: int) -> int:
    """The oldest pull of the instance has ended; returns the request."""
    now = state.pull_due[one]
    request = pop(state.pulling, requests.following, one)
    following = state.pulling.head[one]
    state.pull_due[one] = NEVER if following == NOBODY else requests.ready[following]
    push(state.ready, requests.following, one, request)
    wake(state, one, now)
    return int(request)


@compiled
def leave_home(prefill: PrefillState, requests: Requests, request: int, now: float) -> None:
    """Prefill memory that a pulled request held is free again, and what waits for it may start."""
    home = requests.home[request]
    if home != NOBODY:
        prefill.used[home] -= blocks_of(requests.prompt[request] + requests.generated[request])
        requests.home[request] = NOBODY
        if prefill.queue.head[home] != NOBODY and prefill.batches[home] < prefill.free_at.shape[1]:
            prefill.start_due[home] = min(prefill.start_due[home], max(now, prefill.free_at[home, 0]))


@compiled
def draw_lines(rules: DecodeRules, state: DecodeState, one: int) -> None:
    """Note how long the steps to come are with the batch as it is."""
    count = 0
    for lane in range(rules.pp):
        size = state.lanes[one, lane]
        if size > 0:
            tokens = state.context[one, lane] + size
            for plane in range(rules.planes.shape[0]):
                per_token = rules.planes[plane, 1]
                fixed = rules.planes[plane, 0] + rules.planes[plane, 2] * size
                state.base[one, count] = fixed + per_token * tokens
                state.slope[one, count] = per_token * size
                count += 1
    state.lines[one] = count


@compiled
def advance(rules: DecodeRules, state: DecodeState, one: int) -> None:
    """Do the planned steps."""
    steps = state.due_steps[one]
    if steps > 0:
        base, slope, lines = state.base[one], state.slope[one], state.lines[one]
        first, last = duration(base, slope, lines, 0), duration(base, slope, lines, steps - 1)
        _remember_stall(state, one, first)
        _grow(rules, state, one, steps)
        _remember(state, one, max(first, last))
    state.now[one] = state.due[one]


@compiled
def advance_one(rules: DecodeRules, state: DecodeState, one: int) -> None:
    """Do one step that lasts until `due`, whatever else is in it."""
    if state.running[one] > 0:
        _remember_stall(state, one, state.due[one] - state.now[one])
        _grow(rules, state, one, 1)
        _remember(state, one, state.due[one] - state.now[one])
    state.now[one] = state.due[one]


@compiled
def _grow(rules: DecodeRules, state: DecodeState, one: int, steps: int) -> None:
    for lane in range(rules.pp):
        state.context[one, lane] += steps * state.lanes[one, lane]
    state.used[one] += growth(state.phases[one], state.steps[one], state.running[one], steps)
    state.steps[one] += steps


@compiled
def _remember_stall(state: DecodeState, one: int, step: float) -> None:
    """Those that have run before waited for the stall and a step; those that have joined since wait for less."""
    if state.stall[one] > 0.0:
        _remember(state, one, step + state.stall[one])
        state.stall[one] = 0.0


@compiled
def _remember(state: DecodeState, one: int, seconds: float) -> None:
    """Keep the longest step since any step: only those that no later one exceeds."""
    count = state.remembered[one]
    while count > 0 and state.longest[one, count - 1] <= seconds:
        count -= 1
    if count == REMEMBERED:  # halve: of two neighbours the earlier is the longer one
        count = REMEMBERED // 2
        for place in range(count):
            state.longest[one, place] = state.longest[one, 2 * place]
            state.step_of[one, place] = state.step_of[one, 2 * place + 1]
    state.longest[one, count] = seconds
    state.step_of[one, count] = state.steps[one]
    state.remembered[one] = count + 1


@compiled
def _longest_since(state: DecodeState, one: int, step: int) -> float:
    """The longest step that ended after step number `step`."""
    low, high = 0, state.remembered[one]
    while low < high:
        middle = (low + high) // 2
        if state.step_of[one, middle] > step:
            high = middle
        else:
            low = middle + 1
    return float(state.longest[one, low]) if low < state.remembered[one] else 0.0


@compiled
def _take_out(state: DecodeState, requests: Requests, one: int, place: int) -> int:
    """Remove a running request with its blocks; it keeps the tokens it has."""
    request = finishing.remove(state.ends[one], state.members[one], state.running[one], place)
    state.running[one] -= 1
    done = state.steps[one] - requests.joined[request]
    requests.generated[request] += done
    tokens = requests.prompt[request] + requests.generated[request]
    lane = requests.lane[request]
    state.lanes[one, lane] -= 1
    state.context[one, lane] -= tokens
    state.phases[one, (tokens - state.steps[one]) & LAST] -= 1
    state.used[one] -= blocks_of(tokens)
    longest = _longest_since(state, one, requests.joined[request])
    requests.gap[request] = max(requests.gap[request], longest)
    if done > 0:
        requests.last[request] = state.now[one]
    return request


@compiled
def put_back(rules: DecodeRules, state: DecodeState, requests: Requests, totals: Totals, one: int) -> int:
    """If the next step lacks blocks the youngest request gives its own back; returns it, `NOBODY` if they suffice."""
    if not _lacks_blocks(rules, state, one):
        return NOBODY
    youngest = 0
    for place in range(1, state.running[one]):
        if requests.order[state.members[one, place]] > requests.order[state.members[one, youngest]]:
            youngest = place
    state.seats[one] -= 1
    totals.counts[PUT_BACK] += 1
    return _take_out(state, requests, one, youngest)


@compiled
def _send_back(rules: SplitRules, both: SplitState, requests: Requests, totals: Totals, one: int) -> None:
    """Requests that lack blocks are read again by a prefill instance, with the tokens they have; nobody keeps their KV.

    Without prefill instances they wait here as the first, for a KV that takes as long as the first time.
    """
    state = both.decode
    request = put_back(rules.decode, state, requests, totals, one)
    while request != NOBODY:
        if rules.prefill.instances > 0:
            state.load[one] -= 1
            prefilling.receive(rules.prefill, both.prefill, requests, totals, request, state.now[one])
        else:
            push_first(state.waiting, requests.following, one, request)
        request = put_back(rules.decode, state, requests, totals, one)


@compiled
def _lacks_blocks(rules: DecodeRules, state: DecodeState, one: int) -> bool:
    """Whether another step of more than one request does not fit."""
    free = rules.blocks - state.used[one]
    if state.running[one] <= max(1, free):
        return False
    return bool(begun(state.phases[one], state.steps[one]) > free)


@compiled
def _admit(rules: SplitRules, both: SplitState, requests: Requests, one: int) -> None:
    """Begin the pull of those that have room, first come first served."""
    decode, state = rules.decode, both.decode
    begun = state.now[one]
    while state.waiting.head[one] != NOBODY and state.seats[one] < decode.requests:
        request = state.waiting.head[one]
        tokens = requests.prompt[request] + requests.generated[request]
        spare = decode.spare if state.seats[one] > 0 else 0
        if state.used[one] + blocks_of(tokens + 1) + spare > decode.blocks:
            break
        pop(state.waiting, requests.following, one)
        state.seats[one] += 1
        state.used[one] += blocks_of(tokens)
        _pull(rules.link, both, requests, one, request, tokens)
    if rules.link.blocking and state.running[one] > 0:
        state.stall[one] += state.now[one] - begun


@compiled
def _pull(link: LinkRules, both: SplitState, requests: Requests, one: int, request: int, tokens: int) -> None:
    state, prefill = both.decode, both.prefill
    home = requests.home[request]
    start = max(state.now[one], state.link_free[one])
    if home != NOBODY:
        start = max(start, prefill.link_free[home])
    end = start + link.latency + link.per_token * tokens
    state.link_free[one] = end
    if home != NOBODY:
        prefill.link_free[home] = end
    if end > state.now[one] and not link.blocking:
        requests.ready[request] = end
        if state.pulling.head[one] == NOBODY:
            state.pull_due[one] = end
        push(state.pulling, requests.following, one, request)
        return
    state.now[one] = end
    leave_home(prefill, requests, request, end)
    push(state.ready, requests.following, one, request)


@compiled
def join(state: DecodeState, requests: Requests, totals: Totals, one: int, request: int) -> None:
    """A pulled request runs from the next step on, in the smallest micro-batch."""
    lane = int(np.argmin(state.lanes[one]))
    tokens = requests.prompt[request] + requests.generated[request]
    state.lanes[one, lane] += 1
    state.context[one, lane] += tokens
    state.phases[one, (tokens - state.steps[one]) & LAST] += 1
    requests.lane[request] = lane
    requests.waited[request] += state.now[one] - requests.last[request]
    requests.joined[request] = state.steps[one]
    totals.counts[JOININGS] += 1
    requests.order[request] = totals.counts[JOININGS]
    end = state.steps[one] + requests.output[request] - 1 - requests.generated[request]
    state.fresh[one, state.newcomers[one]] = request
    state.newcomers[one] += 1
    finishing.add(state.ends[one], state.members[one], state.running[one], end, request)
    state.running[one] += 1


@compiled
def plan(rules: DecodeRules, state: DecodeState, requests: Requests, one: int) -> None:
    """Plan steps until the next request ends, or until the blocks do."""
    if state.running[one] == 0:
        state.due[one] = NEVER
        return
    steps = state.ends[one, 0] - state.steps[one]
    free = rules.blocks - state.used[one]
    steps = max(1, steps_that_fit(state.phases[one], state.steps[one], state.running[one], steps, free))
    draw_lines(rules, state, one)
    base, slope, lines = state.base[one], state.slope[one], state.lines[one]
    state.due_steps[one] = steps
    state.due[one] = state.now[one] + time_of(base, slope, lines, steps)
    if state.newcomers[one] > 0:
        mark_first_gap(state, requests, one, state.now[one] + duration(base, slope, lines, 0))


@compiled
def mark_first_gap(state: DecodeState, requests: Requests, one: int, end: float) -> None:
    """Requests that have joined since the last step wait for their next token until `end`."""
    for place in range(state.newcomers[one]):
        request = state.fresh[one, place]
        requests.gap[request] = max(requests.gap[request], end - requests.last[request])
    state.newcomers[one] = 0
