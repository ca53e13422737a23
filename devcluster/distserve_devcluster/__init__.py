"""Starts, watches and stops the local one-machine Kubernetes; everything inside it is Go."""
