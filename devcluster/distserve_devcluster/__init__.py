"""Starts, watches and stops the local one-machine Kubernetes."""
