"""The other ranks of an instance: processes that this one starts, watches and outlives."""
