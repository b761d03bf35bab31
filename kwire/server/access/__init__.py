"""Who comes in at a node's listeners by TLS or a log-in, and how the node comes in at others'."""
