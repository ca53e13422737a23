"""Finds the fleet: latency models, simulator and search of the paper. No kopf, no Kubernetes, no torch, no clock."""
