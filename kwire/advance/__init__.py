"""Advances of a core's clock by tests: what is due meanwhile fires in order, live nodes and clients stay connected."""

__all__ = ["advance", "amounts", "life"]  # modules for other rooms
