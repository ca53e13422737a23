"""Status and conditions from what was observed: ordered lists of small named checks, the first that speaks decides."""
