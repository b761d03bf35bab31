"""`clock` of a cluster: all its nodes, in processes and containers too, at once; with and without an event loop."""
