"""The contract between the parts: generated messages and services, and the names in `contract`."""
