"""Quotas that act: what clients have used, how long they are throttled, and connections that are muted meanwhile."""

__all__ = ["requests"]  # modules for other rooms
