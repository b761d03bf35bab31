"""kwire in a container: the contract of the images apache/kafka and confluentinc/cp-kafka."""
