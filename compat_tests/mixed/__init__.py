"""A kwire broker inside a real Apache Kafka cluster in ZooKeeper mode (issue 4, design/mixed-cluster.md)."""
