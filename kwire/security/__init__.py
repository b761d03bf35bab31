"""Authentication of clients without I/O: SASL's mechanisms, the log-in of a connection, what Kafka's keys say of it."""

__all__ = [
    "access_rules",
    "arguments",
    "certificates",
    "client",
    "gate",
    "jaas",
    "mechanism",
    "oauth_settings",
    "options",
    "peer_login",
    "principals",
    "settings",
    "signed_tokens",
    "tls_stream",
]  # modules for other rooms
