"""Transactions: the coordinator, the markers that end a transaction, verification by partition leaders."""

__all__ = [
    "coordinator",
    "marker_writer",
    "markers",
    "metadata",
]  # modules for other rooms
