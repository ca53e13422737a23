"""Talks to the API server: kopf's indexes for reading, `kubernetes.aio` for writing."""
