"""Options of Spark's Kafka source and sink, as Python values: checked, and written as Spark reads them.

Spark takes any name of an option and ignores those that it does not know. Names are those of Spark's "Structured
Streaming + Kafka Integration Guide" of 3.5 and 4.0; a name that begins with "kafka." goes to Kafka's client, unchecked.
"""

from __future__ import annotations

import json

from kwire.errors import ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    Topics = str | list[str] | tuple[str, ...] | set[str] | frozenset[str]

_SOURCE = (
    *("subscribe", "subscribePattern", "assign", "failOnDataLoss", "minPartitions"),
    *("maxRecordsPerPartition", "groupIdPrefix", "includeHeaders", "startingOffsets"),
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
)
_SINK = ("topic", "includeHeaders")
OPTIONS: Final = {
    "read": (*_SOURCE, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    "read_stream": (*_SOURCE, "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    "write": _SINK,
    "write_stream": (*_SINK, "checkpointLocation", "queryName"),
}
"""By the method of `kwire_spark`."""
_CLIENT = ("kafka.bootstrap.servers", "kafka.group.id", "kafka.client.id", "kafka.client.rack")
_SPECIAL_OFFSETS = {"latest": -1, "earliest": -2}


def to_texts(method: str, options: Mapping[str, object]) -> dict[str, str]:
    """The options of a method as texts: lists with commas, dicts as JSON, True as "true".

    ConfigurationError for a name that the method does not have, with the nearest one that it has."""
    texts = {}
    for name, value in options.items():
        _check_name(method, name)
        if value is not None:  # PySpark leaves it out, too
            texts[name] = _text(method, name, value)
    return texts


def topics_text(method: str, topics: Topics) -> str:
    """One topic or several as Spark's option has them: with commas, and only a source takes several."""
    names = [topics] if isinstance(topics, str) else topics
    if not isinstance(names, list | tuple | set | frozenset) or not names:
        raise ConfigurationError(f"kwire_spark.{method}: expected a topic, not {topics!r}")
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"kwire_spark.{method}: expected a topic, not {name!r}")
    if method.startswith("write") and len(names) > 1:
        raise ConfigurationError(
            f"kwire_spark.{method}: one topic, not {topics!r}; for several leave it out and give the rows a"
            " column topic"
        )
    return ",".join(sorted(names) if isinstance(names, set | frozenset) else names)


def _check_name(method: str, name: str) -> None:
    lower, known = name.lower(), OPTIONS[method]
    if method.startswith("write") and lower == "kafka.transactional.id":
        raise ConfigurationError(
            f"kwire_spark.{method}: Spark's sink has no transactions, leave {name} out"
        )
    if lower.startswith("kafka.") or lower in [each.lower() for each in known]:
        return
    others = [other for other, names in OPTIONS.items() if name in names]
    if others:
        hint = f"; it is one of {' and '.join(others)}"
    else:
        from difflib import get_close_matches

        by_lower = {each.lower(): each for each in (*known, *_CLIENT)}
        nearest = get_close_matches(lower.replace("_", "."), by_lower, 1, 0.7)
        hint = f"; did you mean {by_lower[nearest[0]]}?" if nearest else ""
    raise ConfigurationError(f"kwire_spark.{method} has no option {name}{hint}")


def _text(method: str, name: str, value: object) -> str:
    if name.lower() in ("subscribe", "topic"):
        return topics_text(method, value)  # type: ignore[arg-type]  # checked there
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps({topic: _offsets(given) for topic, given in value.items()})
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(str, value))
    return str(value)


def _offsets(of_topic: object) -> object:
    """A topic's offsets by partition, with -2 for "earliest" and -1 for "latest"; or its partitions."""
    if isinstance(of_topic, dict):
        return {
            str(partition): _SPECIAL_OFFSETS.get(offset, offset)
            if isinstance(offset, str)
            else offset
            for partition, offset in of_topic.items()
        }
    return list(of_topic) if isinstance(of_topic, tuple | set | frozenset | range) else of_topic
