"""KV blocks from the memory of one process into that of another in the same pod, copied once by the reader."""
