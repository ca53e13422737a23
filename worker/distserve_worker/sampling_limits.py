"""Which values of sampling parameters are taken: by the gateway from clients, and by the engine from gateways.

All are finite in FP32, and so is everything that logits within a model's range become by them.
"""

from typing import Final

MAX_TEMPERATURE: Final = 2.0
MIN_REPETITION_PENALTY: Final = 0.01
MAX_REPETITION_PENALTY: Final = 100.0
MAX_PENALTY: Final = 2.0  # of presence and frequency, to either side of 0
MAX_BIAS: Final = 100.0  # of a logit, to either side of 0
MAX_BIASED_TOKENS: Final = 1024
MAX_STOP_TOKENS: Final = 1024  # with those that the model itself ends with
MAX_LOGPROBS: Final = 20  # most likely tokens that are told for each position
