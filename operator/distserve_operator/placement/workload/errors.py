"""What can be wrong with a description of a workload."""


class WorkloadError(ValueError):
    """Nothing that could be simulated; the text names where it stands, the value and what is expected."""
