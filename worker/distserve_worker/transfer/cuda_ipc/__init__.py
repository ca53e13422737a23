"""KV blocks from GPU memory of one process to GPU memory of another in the same pod, copied by the reader's GPU."""
