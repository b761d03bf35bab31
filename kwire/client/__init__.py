"""Kafka clients for kwire's own use: administration over the wire, the image's tools.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["admin", "blocking", "connection", "streams"]
