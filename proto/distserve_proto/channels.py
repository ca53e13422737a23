"""gRPC options that both ends of a connection must agree on: keepalive, message size, streams."""

from typing import Final

# A silent partner is noticed after KEEPALIVE_MILLISECONDS + KEEPALIVE_TIMEOUT_MILLISECONDS. The time-out is the longer
# one: on a machine whose cores are all busy a healthy process can need most of a second to answer.
KEEPALIVE_MILLISECONDS: Final = 1_000
KEEPALIVE_TIMEOUT_MILLISECONDS: Final = 2_000
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024  # a prompt of a million tokens is about 3 MB

_BOTH: Final = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MILLISECONDS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MILLISECONDS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MILLISECONDS),  # default: a minute, whatever keepalive says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)

CLIENT_OPTIONS: Final = (
    *_BOTH,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 3_000),  # it bounds one connection attempt
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel never inherits the back-off of a dead one
    ("grpc.enable_http_proxy", 0),
)

SERVER_OPTIONS: Final = (
    *_BOTH,
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MILLISECONDS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 256),
    ("grpc.so_reuseport", 0),  # a second process on the same port is an error, not a lottery
)
