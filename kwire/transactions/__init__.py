"""Transactions: the coordinator, the markers that end a transaction, verification by partition leaders."""

__all__ = ["marker_writer", "markers"]  # modules for other rooms
