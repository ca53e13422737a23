"""What the ranks of an instance compute in a step, and how they are driven."""
