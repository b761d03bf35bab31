"""kwire in a container, compatible with the images apache/kafka and confluentinc/cp-kafka."""
