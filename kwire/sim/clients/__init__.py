"""Clients of the simulator, a module for each kind; `kinds.py` makes those of a plan."""
