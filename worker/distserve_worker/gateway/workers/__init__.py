"""The gateway's side of the streams that it keeps with the workers."""
