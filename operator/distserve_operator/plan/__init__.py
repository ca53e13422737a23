"""What to do next: desired and observed in, ordered actions out. No client, no clock, no memory of earlier passes."""
