"""The agent of a rank that lives in another process, over a pipe."""
