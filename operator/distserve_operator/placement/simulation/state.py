"""What the compiled simulation works on: parameters, and the arrays that change while it runs.

Times are seconds; `inf` means never. Arrays of instances have one entry an instance, arrays of requests one a request.
"""

from typing import NamedTuple

import numpy as np

from distserve_operator.placement.simulation.block_size import BLOCK_TOKENS
from distserve_operator.placement.simulation.lists import NOBODY, Fifos, empty_fifos

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
NumberTable = np.ndarray[tuple[int, int], np.dtype[np.int64]]

NEVER = np.inf
# steps that are remembered for the longest gap of the running requests; more are merged in pairs
REMEMBERED = 512


class PrefillRules(NamedTuple):
    """Prefill instances. A row of `planes`: seconds (fixed, per token, per squared length); the largest counts."""

    planes: Table
    instances: int
    pp: int
    hop: float  # seconds from a stage to the next
    tokens: int  # of one batch (L_m)
    requests: int  # of one batch
    blocks: int  # KV capacity


class MixedRules(NamedTuple):
    """How colocated instances serve prompts."""

    planes: Table  # of prefill, as in `PrefillRules`
    tokens: int  # of a prefill batch, or of a mixed step
    chunked: bool
    overlap: float  # share of a chunk's own time that hides behind the decode step
    context_seconds: float  # of reading one token's KV again, for chunks after the first


class DecodeRules(NamedTuple):
    """Decode instances. A row of `planes`: seconds (fixed, per token of context, per request); the largest counts."""

    planes: Table
    instances: int
    pp: int
    requests: int  # of one batch, all micro-batches together
    blocks: int  # KV capacity
    spare: int  # blocks that an admission leaves free


class LinkRules(NamedTuple):
    """The way of the KV. Both ends move one request at a time."""

    latency: float
    per_token: float  # seconds
    blocking: bool  # the decode step waits for it
    units: int  # KV stays inside a unit: instances are cut into so many equal parts


class SplitRules(NamedTuple):
    """A fleet with instances for each phase; one of them may have none."""

    prefill: PrefillRules
    decode: DecodeRules
    link: LinkRules


class Targets(NamedTuple):
    """When a request has failed, and how many may before the run is given up."""

    ttft: float
    tpot: float
    gap: float
    handling: float  # seconds of host and client that every first token takes besides
    per_token: float  # and for each token of its prompt
    start: int  # the first request that is judged
    stop: int  # the first one after it that is not
    failures: int
    share: float  # of the judged requests that may fail
    stretch: int  # requests that one look at the failed share takes in; 0: no look before the end
    joint: bool  # a request meets all targets; False: each target has its own failures


class Requests(NamedTuple):
    """The sample path, and what became of it."""

    arrival: Floats
    prompt: Numbers
    output: Numbers
    ttft: Floats
    tpot: Floats
    gap: Floats
    first: Floats  # time of the first token
    last: Floats  # time of its last token when it does not run
    following: Numbers  # the next one in its queue
    generated: Numbers  # tokens after the first, as of its last stop
    computed: Numbers  # tokens of its prompt that chunks have done
    held: Numbers  # blocks that it has before it runs
    joined: Numbers  # steps of its instance when it joined
    order: Numbers  # grows with every joining
    home: Numbers  # prefill instance that holds its KV
    lane: Numbers  # micro-batch
    waited: Floats  # seconds between its first token and the steps that it joined, all together
    ready: Floats  # when its pull ends
    fate: Numbers  # `UNKNOWN`, `PASSED` or `MISSED`


class PrefillState(NamedTuple):
    """Prefill instances at work."""

    queue: Fifos
    flight: Fifos
    queued: Numbers  # tokens that wait or are being worked on
    turn: Numbers
    used: Numbers  # blocks of batches in flight and of parked KV
    free_at: Table  # per stage
    exits: Table  # ring of batches in flight: when they end
    sizes: NumberTable  # their requests
    batches: Numbers
    oldest: Numbers  # place in the ring
    start_due: Floats
    exit_due: Floats
    link_free: Floats


class DecodeState(NamedTuple):
    """Decode instances at work; `now` is the last step boundary."""

    now: Floats
    due: Floats
    due_steps: Numbers
    steps: Numbers
    lanes: NumberTable  # requests of each micro-batch
    context: NumberTable  # tokens of each micro-batch
    running: Numbers
    seats: Numbers  # taken by requests that run or are about to
    load: Numbers  # waiting, pulling or running
    turn: Numbers
    used: Numbers
    phases: NumberTable
    ends: NumberTable  # heap of running requests: the step in which they end
    members: NumberTable
    fresh: NumberTable  # requests that joined since the last step
    newcomers: Numbers  # how many
    waiting: Fifos
    pulling: Fifos
    ready: Fifos
    pull_due: Floats
    link_free: Floats
    stall: Floats  # that the next step begins late
    base: Table  # the lines of `stepping` for the steps from `now` on
    slope: Table
    lines: Numbers  # how many there are
    work: Numbers  # of colocated instances: `DECODING`, `PREFILLING` or `MIXED`
    flight: Fifos  # of colocated instances: prompts that end with the step
    step_of: NumberTable  # decreasing durations of past steps, for the longest gap
    longest: Table
    remembered: Numbers


class SplitState(NamedTuple):
    """Instances of both phases at work."""

    prefill: PrefillState
    decode: DecodeState


class Totals(NamedTuple):
    """Counters by the names below. Where targets are judged apart, `FAILED` is of TTFT and `FAILED_TPOT` of TPOT."""

    counts: Numbers
    sums: Floats


DECODING, PREFILLING, MIXED = range(3)
UNKNOWN, PASSED, MISSED = range(3)
TURNS, JOININGS, FAILED, FAILED_TPOT, LEFT, PUT_BACK, KNOWN, KNOWN_MISSED, STRETCH_MISSED, CLEAR = range(10)
COUNTERS = 10
STRETCH_WAITED, WAITED_BEFORE = range(2)  # seconds of TTFT: of a stretch's requests so far, mean of the one before
# what is clear of failures once so many stretches in a row say it; counted up and down from 0
FEW, TOO_MANY = 3, -2


def fresh_requests(arrival: Floats, prompt: Numbers, output: Numbers) -> Requests:
    """Requests of which nothing is known yet: TTFT and TPOT are `NEVER`, the longest gap is 0."""
    count = len(arrival)
    return Requests(
        arrival,
        prompt,
        output,
        ttft=np.full(count, NEVER),
        tpot=np.full(count, NEVER),
        gap=np.zeros(count),
        first=np.zeros(count),
        last=np.zeros(count),
        following=np.zeros(count, np.int64),
        generated=np.zeros(count, np.int64),
        computed=np.zeros(count, np.int64),
        held=np.zeros(count, np.int64),
        joined=np.zeros(count, np.int64),
        order=np.zeros(count, np.int64),
        home=np.full(count, NOBODY),
        lane=np.zeros(count, np.int64),
        waited=np.zeros(count),
        ready=np.zeros(count),
        fate=np.zeros(count, np.int64),
    )


def fresh_totals(judged: int) -> Totals:
    """Nothing has happened to so many judged requests."""
    totals = Totals(np.zeros(COUNTERS, np.int64), np.array([0.0, NEVER]))
    totals.counts[LEFT] = judged
    return totals


def fresh_prefill(rules: PrefillRules) -> PrefillState:
    """Idle prefill instances."""
    count = max(1, rules.instances)
    stages = (count, max(1, rules.pp))
    return PrefillState(
        queue=empty_fifos(count),
        flight=empty_fifos(count),
        queued=np.zeros(count, np.int64),
        turn=np.zeros(count, np.int64),
        used=np.zeros(count, np.int64),
        free_at=np.zeros(stages),
        exits=np.zeros(stages),
        sizes=np.zeros(stages, np.int64),
        batches=np.zeros(count, np.int64),
        oldest=np.zeros(count, np.int64),
        start_due=np.full(count, NEVER),
        exit_due=np.full(count, NEVER),
        link_free=np.zeros(count),
    )


def fresh_decode(rules: DecodeRules, requests: int) -> DecodeState:
    """Idle decode instances that will see no more than `requests` requests."""
    count = max(1, rules.instances)
    lanes = (count, max(1, rules.pp))
    most = min(rules.requests, requests) + 1
    lines = max(1, rules.pp) * len(rules.planes)
    return DecodeState(
        now=np.zeros(count),
        due=np.full(count, NEVER),
        due_steps=np.zeros(count, np.int64),
        steps=np.zeros(count, np.int64),
        lanes=np.zeros(lanes, np.int64),
        context=np.zeros(lanes, np.int64),
        running=np.zeros(count, np.int64),
        seats=np.zeros(count, np.int64),
        load=np.zeros(count, np.int64),
        turn=np.zeros(count, np.int64),
        used=np.zeros(count, np.int64),
        phases=np.zeros((count, BLOCK_TOKENS), np.int64),
        ends=np.zeros((count, most), np.int64),
        members=np.zeros((count, most), np.int64),
        fresh=np.zeros((count, most), np.int64),
        newcomers=np.zeros(count, np.int64),
        waiting=empty_fifos(count),
        pulling=empty_fifos(count),
        ready=empty_fifos(count),
        pull_due=np.full(count, NEVER),
        link_free=np.zeros(count),
        stall=np.zeros(count),
        base=np.zeros((count, lines)),
        slope=np.zeros((count, lines)),
        lines=np.zeros(count, np.int64),
        work=np.zeros(count, np.int64),
        flight=empty_fifos(count),
        step_of=np.zeros((count, REMEMBERED), np.int64),
        longest=np.zeros((count, REMEMBERED)),
        remembered=np.zeros(count, np.int64),
    )
