"""kwire in a container, compatible with the images apache/kafka and confluentinc/cp-kafka.

The image's scripts run it; `__all__` names the modules that other rooms may import.
"""

__all__ = ["container"]
