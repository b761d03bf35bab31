"""Authentication of clients without I/O: SASL's mechanisms, the log-in of a connection, what Kafka's keys say of it."""

__all__ = [
    "certificates",
    "client",
    "gate",
    "mechanism",
    "options",
    "peer_login",
    "principals",
    "settings",
    "tls_stream",
]  # modules for other rooms
