"""Kafka clients for kwire's own use: administration over the wire, groups, records, the image's tools.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "admin",
    "blocking",
    "connection",
    "groups",
    "hanging",
    "lines",
    "maintenance",
    "offsets",
    "partitioner",
    "reader",
    "records",
    "retries",
    "streams",
    "tls",
    "transactions",
    "views",
]
