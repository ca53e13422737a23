"""KV blocks over a TCP connection, straight from block memory to block memory."""
