"""Where a model's files are and what they say about it: locating, GGUF and Hugging Face metadata. No torch."""
