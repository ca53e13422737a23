"""Everything that runs inside the pods the operator emits: engine, KV transfer, server, gateway."""
