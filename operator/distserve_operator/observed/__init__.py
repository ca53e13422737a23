"""Typed, frozen view of what exists in the cluster: worker pods, gateway, other children; touches no client."""
