"""Next token of each row of logits; `choice` and `checks` know no tensors."""
