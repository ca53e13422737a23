"""Discrete-event simulation of a fleet, compiled: an event per arrival, batch end, pull and change of a batch."""
