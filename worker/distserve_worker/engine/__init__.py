"""Runs the model: blocks, schedulers, sampling, models and weights behind `interface.Engine`."""
