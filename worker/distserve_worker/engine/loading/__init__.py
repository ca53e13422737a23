"""Weights from files into memory, tensor by tensor, under Hugging Face's names."""
