"""Why the KV of a leg cannot be had, as its gateway is told: gone for everybody, or out of this worker's reach."""

from typing import ClassVar, Final

import grpc

from distserve_proto import worker_pb2
from distserve_worker.server.peers import PeerError
from distserve_worker.transfer.interface import Fault, TransferError

# The prefill worker itself says that it does not have this KV. Any other status may change, or is not its own.
_GONE: Final = frozenset({grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION})
_NO_WAY: Final = frozenset({Fault.UNREACHABLE, Fault.STALLED})


class KvFailure(Exception):  # noqa: N818 - named after what the gateway is told
    """The KV of a leg cannot be had."""

    code: ClassVar[worker_pb2.FailureCode.ValueType]


class KvLost(KvFailure):
    """It is gone: prefill has to run again."""

    code = worker_pb2.FAILURE_CODE_KV_LOST


class KvUnreachable(KvFailure):
    """It may be there, but not for this decode worker."""

    code = worker_pb2.FAILURE_CODE_KV_UNREACHABLE


def of_call(doing: str, error: PeerError) -> KvFailure:
    """What a failed call to the prefill worker means."""
    return (KvLost if error.code in _GONE else KvUnreachable)(f"{doing}: {error}")


def of_transfer(error: TransferError) -> KvFailure:
    """What a broken transfer means."""
    return (KvUnreachable if error.fault in _NO_WAY else KvLost)(f"the transfer failed: {error}")
