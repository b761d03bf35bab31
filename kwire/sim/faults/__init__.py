"""Faults of the simulator: the nemesis, and the kinds of faults by subject."""
