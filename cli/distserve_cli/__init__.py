"""The distserve command line."""
