"""Faults of disks in the control API, of a cluster and of the nodes in one process."""
