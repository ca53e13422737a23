"""One validated request in the terms of the workers: tokens in, limits, and how to sample."""

from dataclasses import dataclass

from distserve_proto.worker_pb2 import Sampling


@dataclass(frozen=True, slots=True)
class Generation:
    """One choice of a request; nothing in it depends on the endpoint or on streaming."""

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int | None
    sampling: Sampling
    stop_strings: tuple[str, ...]
    stop_token_ids: frozenset[int]
    prefix_salt: str = ""  # whom its KV is shared with; empty: everybody
