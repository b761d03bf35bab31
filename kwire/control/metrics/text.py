"""The text of `GET /metrics`: pages of all nodes as metrics, written by prometheus_client.

Runs on a thread: the import takes a tenth of a second, the text of thousands of partitions more. One metric is made
at a time, so that the garbage collector, which stops all threads, has little to look at.
"""

from __future__ import annotations

from collections import Counter

from kwire.control.errors import ControlError
from kwire.control.metrics.table import (
    BROKER,
    BROKERS,
    COUNTER,
    GAUGE,
    MANAGER,
    METRICS,
    OF_CLUSTER,
    PARTITIONS,
    ROW,
    TOPICS,
    UNTYPED,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from prometheus_client import Metric as Family

    from kwire.control.metrics.table import Answer

    Sample = tuple[str | None, Sequence[Any], float]
    """The id of a node (None: of the cluster), the values of the labels, the number."""
    Row = list[Any]

MISSING = (
    "metrics: the package prometheus-client is not installed here: pip install prometheus-client"
)
_KINDS = {COUNTER: "counter", GAUGE: "gauge", UNTYPED: "unknown"}
_AT = {name: index for index, name in enumerate(ROW)}
_LEADER, _LAG, _CLIENT = _AT["leader"], _AT["lag"], _AT["client"]
_HIGH_WATERMARK = _AT["high_watermark"]
_SUMS = {
    f"{MANAGER}{name}": _AT[field]
    for name, field in (
        ("underreplicatedpartitions", "under_replicated"),
        ("underminisrpartitioncount", "under_min"),
        ("atminisrpartitioncount", "at_min"),
        ("produceridcount", "producers"),
    )
}
_OF_LEADERS = {
    f"kafka_topic_partition_{name}": _AT[field]
    for name, field in (
        ("current_offset", "high_watermark"),
        ("oldest_offset", "start"),
        ("in_sync_replica", "isr"),
        ("replicas", "replicas"),
        ("leader", "leader"),
        ("leader_is_preferred", "preferred"),
        ("under_replicated_partition", "under_replicated"),
    )
}


def text(answers: Iterable[Answer]) -> bytes:
    """The text, format 0.0.4. ControlError: prometheus_client is not installed."""
    try:
        from prometheus_client.exposition import generate_latest
    except ImportError:
        raise ControlError(409, MISSING) from None
    registry: Any = Scrape(answers)  # of which nothing but `collect` is used
    return generate_latest(registry)


class Scrape:
    """What all nodes have answered, and the metrics that it makes."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._up: list[Sample] = []
        self._samples: dict[str, Counter[tuple[str, tuple[str, ...]]]] = {}
        self._brokers: dict[str, list[Row]] = {}
        self._leaders: dict[tuple[str, int], Row] = {}
        self._topics: dict[tuple[str, str], list[int]] = {}
        self._offsets: dict[tuple[str, str, int], int] = {}
        self._members: dict[str, int] = {}
        for answer in answers:
            self._take(answer)
        self._makers = self._all_makers()

    def _take(self, answer: Answer) -> None:
        broker, is_up = str(answer.node_id), bool(answer.pages)
        self._up.append((broker, [answer.role], int(is_up)))
        rows: dict[tuple[str, int], Row] = {}  # one that stands on two pages counts once
        for page in answer.pages:
            for name, values, number in page["samples"]:  # broker and controller may share an id
                self._samples.setdefault(name, Counter())[broker, tuple(values)] += number
            for row in page["partitions"]:
                rows[row[0], row[1]] = row
                if row[_LEADER] >= 0:
                    self._leaders[row[0], row[1]] = row
            for topic, *counts in page["topics"]:
                self._topics[broker, topic] = counts
            self._offsets |= {(group, topic, n): at for group, topic, n, at in page["offsets"]}
            self._members |= dict(page["members"])
        if is_up and answer.role == "broker":
            self._brokers[broker] = list(rows.values())

    def collect(self) -> Iterator[Family]:
        """The metrics that have samples, in the order of the table; each is made when it is asked for."""
        from prometheus_client import Metric as Family

        for metric in METRICS:
            found = Family(metric.name.removesuffix("_total"), metric.help, _KINDS[metric.kind])
            make = self._makers.get(metric.name)
            for broker, values, number in () if make is None else make():
                labels = {
                    label: _printable(value)
                    for label, value in zip(metric.labels, values, strict=False)  # no topic: of all
                }
                if broker is not None:
                    labels[BROKER] = broker
                found.add_sample(metric.name, labels, number)
            for (broker, values), number in self._samples.get(metric.name, {}).items():
                labels = dict(zip(metric.labels, map(_printable, values), strict=False))
                found.add_sample(metric.name, {**labels, BROKER: broker}, number)
            if found.samples:
                yield found

    # --- what is not a sample of a node's first page

    def _all_makers(self) -> dict[str, Callable[[], Iterable[Sample]]]:
        """What makes the samples of a metric, by its name."""
        return {
            BROKERS[0].name: lambda: self._of_brokers(len),
            f"{MANAGER}leadercount": lambda: self._of_brokers(
                lambda rows: sum(row[_LEADER] >= 0 for row in rows)
            ),
            **{name: self._sums(index) for name, index in _SUMS.items()},
            "kafka_server_replicafetchermanager_maxlag": lambda: (
                (broker, ["Replica"], max((row[_LAG] for row in rows), default=0))
                for broker, rows in self._brokers.items()
            ),
            "kwire_node_up": lambda: self._up,
            **{each.name: self._of_topics(index) for index, each in enumerate(TOPICS)},
            **{each.name: self._of_rows(index) for index, each in enumerate(PARTITIONS[:-1], 2)},
            PARTITIONS[-1].name: self._lags,
            OF_CLUSTER[0].name: lambda: [(None, [], len(self._brokers))],
            OF_CLUSTER[1].name: self._partitions,
            **{name: self._of_leaders(index) for name, index in _OF_LEADERS.items()},
            "kafka_consumergroup_members": lambda: (
                (None, [group], count) for group, count in self._members.items()
            ),
            "kafka_consumergroup_current_offset": lambda: (
                (None, where, offset) for where, offset in self._offsets.items()
            ),
            "kafka_consumergroup_lag": self._group_lags,
        }

    def _of_brokers(self, count: Callable[[list[Row]], int]) -> Iterator[Sample]:
        for broker, rows in self._brokers.items():
            yield broker, [], count(rows)

    def _sums(self, index: int) -> Callable[[], Iterable[Sample]]:
        return lambda: self._of_brokers(lambda rows: sum(row[index] for row in rows))

    def _of_topics(self, index: int) -> Callable[[], Iterable[Sample]]:
        return lambda: (
            (broker, [topic], counts[index]) for (broker, topic), counts in self._topics.items()
        )

    def _of_rows(self, index: int) -> Callable[[], Iterable[Sample]]:
        return lambda: (
            (broker, row, row[index]) for broker, rows in self._brokers.items() for row in rows
        )

    def _of_leaders(self, index: int) -> Callable[[], Iterable[Sample]]:
        return lambda: ((None, row, row[index]) for row in self._leaders.values())

    def _lags(self) -> Iterator[Sample]:
        for broker, rows in self._brokers.items():
            for row in rows:
                if row[_CLIENT] is not None:
                    yield broker, [row[_CLIENT], *row[:2]], row[_LAG]

    def _partitions(self) -> Iterator[Sample]:
        for topic, count in Counter(topic for topic, _ in self._leaders).items():
            yield None, [topic], count

    def _group_lags(self) -> Iterator[Sample]:
        for (group, topic, index), offset in self._offsets.items():
            leader = self._leaders.get((topic, index))
            if leader is not None:
                yield None, (group, topic, index), max(0, leader[_HIGH_WATERMARK] - offset)


def _printable(value: object) -> str:
    """The value of a label: UTF-8, whatever bytes the name of a topic or group was."""
    found = str(value)
    return found if found.isascii() else found.encode("utf-8", "replace").decode()
