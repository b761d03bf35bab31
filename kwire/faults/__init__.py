"""Faults that tests set on requests: errors, delays, lost answers, corrupt records, closed connections.

A broker without a rule imports nothing of this; with one, only the APIs that a rule names take its way."""

__all__ = ["rules", "slow_disk", "table"]
