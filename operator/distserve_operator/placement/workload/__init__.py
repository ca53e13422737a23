"""Who comes when, with how many tokens: what a search simulates."""
