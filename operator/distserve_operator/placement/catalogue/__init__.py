"""Known models, known devices and the profiles that are shipped: data files and their readers."""
