"""`distserve profile`: measures how long the engine's steps take on this machine, and fits the laws that plans use."""
