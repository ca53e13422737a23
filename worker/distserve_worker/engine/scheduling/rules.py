"""Bounds that the policies keep."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PromptRules:
    """How prompts are put together: whole ones up to L_m new tokens, or pieces of them up to `chunk_tokens` a step.

    `max_prompts`: of one step, as each has a row of scores; None: as many as there are tokens.
    """

    max_batch_tokens: int  # L_m
    chunk_tokens: int | None = None
    max_prompts: int | None = None

    def takes(self, prompts: int, room: int) -> bool:
        """Whether a step with `room` for new tokens that has so many `prompts` takes another one."""
        return room > 0 and (self.max_prompts is None or prompts < self.max_prompts)

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
