"""`GET /metrics`: what the nodes count, in the names that Prometheus' JMX exporter gives Kafka's metrics."""
