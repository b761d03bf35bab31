"""The event log of a cluster as it grows: one feed, which asks the nodes while somebody reads."""
