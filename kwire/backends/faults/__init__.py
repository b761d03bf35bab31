"""`faults` of a cluster: set at all its nodes, counted together; for code with and without an event loop."""
