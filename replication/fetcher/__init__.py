"""The fetchers by which followers copy their leaders' logs, one per leader and fetcher id.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["manager"]
