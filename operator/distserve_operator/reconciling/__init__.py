"""One idempotent pass per dirty deployment (observe, plan, act, write status), and the queue that says who is next."""
