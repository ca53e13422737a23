"""Both phases on the same instances: prefill goes first, or prompts are cut into chunks that ride on decode steps.

Prefill first: whenever prompts wait and there is room, the next thing the instance does is a prefill batch, and its
running requests wait. Chunked: a step has one token of every running request and fills up to its token budget with
prompt tokens. With pp stages each micro-batch of one trip round the pipeline has a budget of its own, and the fullest
one sets the pace.
"""

from typing import Final

from distserve_operator.placement.simulation import decoding, judging, prefilling
from distserve_operator.placement.simulation.blocks import begun, blocks_of
from distserve_operator.placement.simulation.clock import soonest
from distserve_operator.placement.simulation.compiling import compiled
from distserve_operator.placement.simulation.lists import NOBODY, pop, push, push_first, unlink
from distserve_operator.placement.simulation.state import (
    DECODING,
    MIXED,
    NEVER,
    PREFILLING,
    DecodeRules,
    DecodeState,
    MixedRules,
    Requests,
    Targets,
    Totals,
)
from distserve_operator.placement.simulation.stepping import duration

LOOK_AHEAD: Final = 64  # requests without room that a step looks past for a prompt that has begun


@compiled
def run(
    mixed: MixedRules,
    rules: DecodeRules,
    targets: Targets,
    state: DecodeState,
    requests: Requests,
    totals: Totals,
) -> None:
    """Simulate until all judged requests are done, or it is clear that too many fail."""
    coming = 0
    while not judging.decided(targets, totals):
        arrival = requests.arrival[coming] if coming < len(requests.arrival) else NEVER
        one = soonest(state.due, rules.instances)
        if state.due[one] <= arrival:
            if state.due[one] == NEVER:
                return
            _boundary(mixed, rules, state, requests, targets, totals, one)
        else:
            _arrive(rules, state, requests, targets, totals, coming)
            coming += 1


@compiled
def _arrive(
    rules: DecodeRules, state: DecodeState, requests: Requests, targets: Targets, totals: Totals, request: int
) -> None:
    if blocks_of(requests.prompt[request] + requests.output[request]) > rules.blocks:
        judging.refused(requests, targets, totals, request)
        return
    one = decoding.choose(state, totals, 0, rules.instances)
    push(state.waiting, requests.following, one, request)
    state.load[one] += 1
    if state.work[one] == DECODING:
        decoding.wake(state, one, requests.arrival[request])


@compiled
def _boundary(
    mixed: MixedRules,
    rules: DecodeRules,
    state: DecodeState,
    requests: Requests,
    targets: Targets,
    totals: Totals,
    one: int,
) -> None:
    """What was planned has been done; plan what comes next."""
    if state.work[one] == DECODING:
        decoding.advance(rules, state, one)
    elif state.work[one] == MIXED:
        decoding.advance_one(rules, state, one)
    else:
        state.stall[one] += state.due[one] - state.now[one]
        state.now[one] = state.due[one]
    state.work[one] = DECODING
    decoding.let_go(state, requests, targets, totals, one)
    _finish_prompts(state, requests, targets, totals, one)
    _put_back(rules, state, requests, totals, one)
    if state.waiting.head[one] != NOBODY:
        seconds = (
            _mix(mixed, rules, state, requests, one) if mixed.chunked else _batch(mixed, rules, state, requests, one)
        )
        if seconds > 0.0:
            state.due[one] = state.now[one] + seconds
            if state.work[one] == MIXED:
                decoding.mark_first_gap(state, requests, one, state.due[one])
            return
    decoding.plan(rules, state, requests, one)


@compiled
def _finish_prompts(state: DecodeState, requests: Requests, targets: Targets, totals: Totals, one: int) -> None:
    """Prompts that ended with the step give their first token, or go on where they were put back."""
    now = state.now[one]
    while state.flight.head[one] != NOBODY:
        request = pop(state.flight, requests.following, one)
        if requests.ttft[request] == NEVER:
            judging.first_token(requests, targets, totals, request, now)
        requests.held[request] = 0
        requests.computed[request] = 0
        if requests.output[request] == 1:
            state.used[one] -= blocks_of(requests.prompt[request])
            state.load[one] -= 1
            state.seats[one] -= 1
            judging.last_token(requests, targets, totals, request, now)
        else:
            decoding.join(state, requests, totals, one, request)


@compiled
def _put_back(rules: DecodeRules, state: DecodeState, requests: Requests, totals: Totals, one: int) -> None:
    """Requests that lack blocks wait as the first, to be read again with the tokens they have."""
    request = decoding.put_back(rules, state, requests, totals, one)
    while request != NOBODY:
        push_first(state.waiting, requests.following, one, request)
        request = decoding.put_back(rules, state, requests, totals, one)


@compiled
def _reserve(rules: DecodeRules, state: DecodeState, requests: Requests, one: int, request: int) -> bool:
    """A seat and blocks for a whole prompt, if it has none yet; says whether it has them now."""
    if requests.held[request] > 0:
        return True
    tokens = requests.prompt[request] + requests.generated[request]
    spare = rules.spare + begun(state.phases[one], state.steps[one]) if state.seats[one] > 0 else 0
    if state.seats[one] >= rules.requests or state.used[one] + blocks_of(tokens + 1) + spare > rules.blocks:
        return False
    requests.held[request] = blocks_of(tokens)
    state.used[one] += requests.held[request]
    state.seats[one] += 1
    return True


@compiled
def _batch(mixed: MixedRules, rules: DecodeRules, state: DecodeState, requests: Requests, one: int) -> float:
    """Seconds of a batch of whole prompts; 0 when not even the first has room."""
    size, tokens, squares = 0, 0, 0.0
    while state.waiting.head[one] != NOBODY:
        request = state.waiting.head[one]
        length = requests.prompt[request] + requests.generated[request]
        if size > 0 and tokens + length > mixed.tokens:
            break
        if not _reserve(rules, state, requests, one, request):
            break
        pop(state.waiting, requests.following, one)
        push(state.flight, requests.following, one, request)
        size += 1
        tokens += length
        squares += float(length) * float(length)
    if size == 0:
        return 0.0
    state.work[one] = PREFILLING
    # pp micro-batches behind each other: the last leaves pp - 1 stage times after the first
    stages = min(rules.pp, size)
    fill = (rules.pp + stages - 1) / (rules.pp * stages)
    return prefilling.batch_seconds(mixed.planes, tokens, squares) * fill


@compiled
def _mix(mixed: MixedRules, rules: DecodeRules, state: DecodeState, requests: Requests, one: int) -> float:
    """Seconds of one decode step that carries prompt tokens up to the budget; 0 when no prompt has room.

    A prompt's tokens of one step go through one micro-batch, which starts anew (`lane`) when the next prompt does not
    fit.
    """
    decoding_tokens = (state.running[one] + rules.pp - 1) // rules.pp
    lane, size, tokens, squares, reread = 0, 0, 0, 0.0, 0
    alone, extra = 0.0, 0.0
    previous, request, passed_over = NOBODY, state.waiting.head[one], 0
    while request != NOBODY and passed_over < LOOK_AHEAD:
        length = requests.prompt[request] + requests.generated[request]
        done = requests.computed[request]
        room = mixed.tokens - decoding_tokens - tokens
        if tokens > 0 and room < length - done and lane + 1 < rules.pp:
            lane, tokens, squares, reread = lane + 1, 0, 0.0, 0
            room = mixed.tokens - decoding_tokens
        if room <= 0:
            break
        begun = requests.held[request] > 0
        if not begun and (passed_over > 0 or not _reserve(rules, state, requests, one, request)):
            passed_over += 1  # of those behind it only prompts that have begun go on
            previous, request = request, requests.following[request]
            continue
        chunk = min(room, length - done)
        size += 1
        tokens += chunk
        squares += float(done + chunk) ** 2 - float(done) ** 2
        reread += done
        again = mixed.context_seconds * reread
        alone = max(alone, prefilling.batch_seconds(mixed.planes, tokens, squares) + again)
        extra = max(extra, _marginal_seconds(mixed, tokens, squares) + again)
        requests.computed[request] = done + chunk
        following = requests.following[request]
        if done + chunk == length:
            unlink(state.waiting, requests.following, one, previous, request)
            push(state.flight, requests.following, one, request)
        else:
            previous = request
        request = following
    if size == 0:
        return 0.0
    state.work[one] = MIXED
    state.due_steps[one] = 1
    if state.running[one] == 0:
        return alone
    decoding.draw_lines(rules, state, one)
    step = duration(state.base[one], state.slope[one], state.lines[one], 0)
    return max(step, step + (1.0 - mixed.overlap) * extra)


@compiled
def _marginal_seconds(mixed: MixedRules, tokens: float, squares: float) -> float:
    """What prompt tokens add to a step that happens anyway: the steepest plane without its fixed part."""
    longest = 0.0
    for plane in range(mixed.planes.shape[0]):
        longest = max(longest, mixed.planes[plane, 1] * tokens + mixed.planes[plane, 2] * squares)
    return longest
