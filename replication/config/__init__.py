"""Configuration: Kafka's table of keys, typed broker settings, the entries of DescribeConfigs.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "authorization",
    "auto_topics",
    "broker_config",
    "docs",
    "entries",
    "fast",
    "given",
    "release",
    "run_time",
    "table",
    "tokens",
    "users",
]
