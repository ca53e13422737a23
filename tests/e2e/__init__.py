"""A package, so that its cluster ends when its tests have run."""
