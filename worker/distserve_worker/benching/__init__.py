"""Processes behind `distserve bench` that need the engine's or the transports' own code."""
