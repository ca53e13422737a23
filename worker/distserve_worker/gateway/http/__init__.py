"""The HTTP server around the application: deadlines for slow clients, draining, the listening socket."""
