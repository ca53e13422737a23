"""What the transports between two processes of one pod share: finding each other, and offers that readers see."""
