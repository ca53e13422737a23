"""Typed, frozen view of the custom resource and of what the operator was started with; touches no client."""
