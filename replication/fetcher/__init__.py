"""Followers: fetchers that copy a leader's log, one per leader and fetcher id.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["manager"]
