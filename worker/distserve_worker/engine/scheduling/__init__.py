"""Who runs next and in which blocks: decisions only, no tensors."""
