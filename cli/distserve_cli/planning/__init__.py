"""`distserve plan` and `distserve simulate`: the placement search and its simulator on the command line."""
