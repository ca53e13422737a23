"""Which placement: candidates, bounds, simulation, verification (paper, section 4; shapes and counts jointly)."""
