"""kwire in a container, compatible with the images apache/kafka and confluentinc/cp-kafka.

The image's scripts run it; no other room imports it.
"""

__all__: list[str] = []
