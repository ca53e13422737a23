"""How long a step takes: a profile of the device, shipped profile data, or a roofline."""
