"""What several test folders share: a deployed system, streamed requests, worker processes."""
