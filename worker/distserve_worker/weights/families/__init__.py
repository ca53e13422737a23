"""How each family of models states its configuration in config.json: one module a family."""
