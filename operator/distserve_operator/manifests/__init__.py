"""Pure builders, one per kind of object that the operator makes."""
