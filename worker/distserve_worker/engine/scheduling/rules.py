"""Bounds that the policies keep."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PromptRules:
    """How prompts are put together: whole ones up to L_m new tokens, or pieces of them up to `chunk_tokens` a step."""

    max_batch_tokens: int  # L_m
    chunk_tokens: int | None = None

    @property
    def cuts(self) -> bool:
        """Whether a prompt may be computed in pieces."""
        return self.chunk_tokens is not None

    @property
    def step_tokens(self) -> int:
        """New tokens of one step, if it is not one long prompt alone."""
        return min(self.max_batch_tokens, self.chunk_tokens or self.max_batch_tokens)


@dataclass(frozen=True, slots=True)
class BatchRules:
    """How large a continuous batch grows."""

    max_running: int  # requests that hold blocks, in all lanes together
    spare: int = 0  # blocks that an admission leaves free, into which those who run grow
    lanes: int = 1  # stages of the pipeline
