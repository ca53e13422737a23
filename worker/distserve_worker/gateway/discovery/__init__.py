"""Where the workers are: a fixed list, or the pods of a deployment."""
