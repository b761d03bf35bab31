"""kwire: a Kafka-wire-compatible test broker with real logs, groups and replication."""

__version__ = "0.1.0"
