"""Transactions: the coordinator, the markers that end a transaction, verification by partition leaders."""

__all__ = [
    "coordinator",
    "events",
    "guards",
    "marker_writer",
    "markers",
    "metadata",
    "records",
    "shard",
    "verification",
]  # modules for other rooms
