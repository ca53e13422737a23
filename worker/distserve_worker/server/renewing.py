"""Keeps the lease of a parked KV alive while its leg waits for room."""

import asyncio
import logging
import time
from typing import Final, Never

from distserve_proto import kv_pb2
from distserve_worker.server.kv_failures import KvLost, of_call
from distserve_worker.server.peers import PeerError, Peers

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 1 / 20  # of a lease: a handle that was handed on may be old, but most need no renewal at all
_PAUSE: Final = 1 / 3
_RETRY_PAUSE: Final = 1 / 10
_SHORTEST_PAUSE_SECONDS: Final = 0.05


async def keep_lease(peers: Peers, handle: kv_pb2.KvHandle) -> Never:
    """Renew until cancelled. Raises `KvFailure`.

    What the prefill worker says of the lease is final; a call that does not get through is repeated for as long as the
    lease can last by what is known here.
    """
    seconds = handle.lease_milliseconds / 1000
    end = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while True:
        await asyncio.sleep(max(_SHORTEST_PAUSE_SECONDS, pause * seconds))
        asked = time.monotonic()
        try:
            seconds = await peers.renew(handle)
        except PeerError as error:
            failure = of_call("the lease could not be renewed", error)
            if isinstance(failure, KvLost) or time.monotonic() >= end:
                raise failure from error
            log.info("trying again: %s", failure)
            pause = _RETRY_PAUSE
        else:
            end = asked + seconds
            pause = _PAUSE
