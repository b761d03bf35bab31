"""Stock clients, unchanged, against real processes: kwire, or Apache Kafka with REAL=1."""
