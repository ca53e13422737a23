"""Text to tokens and back: tokenizer, chat template, incremental detokenizing, stop strings. No torch."""
