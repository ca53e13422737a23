"""The OpenAI API: reading and checking requests, writing responses and streams."""
