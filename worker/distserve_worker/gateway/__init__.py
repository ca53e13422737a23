"""The OpenAI-compatible front door: validates, tokenizes, routes, streams. Never imports torch."""
