"""Model architectures: one module each, from shared layers."""
