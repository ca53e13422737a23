"""KV blocks between GPUs of different pods over NCCL: one communicator of two ranks for each pair that meets."""
