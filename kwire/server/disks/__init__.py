"""Faults of disks that tests set: operations that fail, a disk that is full or slow.

A node without one imports nothing of this, and its stores and files are of the classes that they always are."""
