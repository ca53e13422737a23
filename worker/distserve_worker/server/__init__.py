"""The worker process: gRPC and HTTP around one engine."""
