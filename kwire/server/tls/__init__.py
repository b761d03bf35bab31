"""Listeners that ask for TLS: what Kafka's keys say of it, and their connections. Imported with the first of them."""
