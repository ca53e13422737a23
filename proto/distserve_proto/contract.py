"""Names that operator and workers must agree on: ports, labels, environment variables, exit reasons.

Nothing here has behaviour; a change of a value is a change of the wire between versions.
"""

from enum import StrEnum
from typing import Final

WIRE_VERSION: Final = 2

# Memory of a worker's first process on CPUs besides weights and KV: libraries, and what steps of a small model compute
# in. A worker knows what its own take beyond that; plans count the scores of a vocabulary.
PROCESS_BYTES: Final = 350 << 20
# Requests that get a token in one step of a worker unless its flag says otherwise. Each has a row of scores, of so many
# bytes for each token of the vocabulary: in FP32, as ranks have gathered them, adjusted, and as probabilities.
MAX_RUNNING: Final = 64
SCORE_BYTES: Final = 4 * 4

WORKER_GRPC_PORT: Final = 9000
WORKER_DATA_PORT: Final = 9001
WORKER_HTTP_PORT: Final = 9002
GATEWAY_HTTP_PORT: Final = 8000

LABEL_DEPLOYMENT: Final = "distserve.io/deployment"
LABEL_ROLE: Final = "distserve.io/role"
LABEL_INSTANCE: Final = "distserve.io/instance"
LABEL_SEGMENT: Final = "distserve.io/segment"
LABEL_TEMPLATE_HASH: Final = "distserve.io/template-hash"

# The operator sets it from the pod's CPU request; workers pin their thread pools to it.
ENV_THREADS: Final = "DISTSERVE_THREADS"
ENV_POD_IP: Final = "DISTSERVE_POD_IP"


class Role(StrEnum):
    """What a pod of a deployment does; the value of the role label."""

    PREFILL = "prefill"
    DECODE = "decode"
    COLOCATED = "colocated"
    GATEWAY = "gateway"


WORKER_ROLES: Final = (Role.PREFILL, Role.DECODE, Role.COLOCATED)


class ExitReason(StrEnum):
    """First word of a worker's termination message, `Reason: text`; becomes the condition's reason."""

    MODEL_NOT_FOUND = "ModelNotFound"
    MODEL_INVALID = "ModelInvalid"
    MODEL_DOES_NOT_FIT = "ModelDoesNotFit"
    CONFIGURATION_INVALID = "ConfigurationInvalid"
    ENGINE_FAILED = "EngineFailed"
