"""Moves KV blocks between workers: one interface, one module per transport."""
