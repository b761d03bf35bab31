"""Which partitions are audited, from where to where: asked of a cluster, or read of log directories. Without Spark.

Every problem with what was given is a ConfigurationError of one line, before Spark starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kwire.errors import ConfigurationError
from kwire.replication.log.checkpoints import read_meta_properties

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Sequence
    from typing import TypeVar

    from kwire.client.admin import Steps
    from kwire.client.blocking import Client

    _Answer = TypeVar("_Answer")


_LEADERLESS_SECONDS = 20.0
"""How long a partition may be without a leader that answers."""


class Place(NamedTuple):
    """A partition, and the offsets of it that are audited; the end is exclusive."""

    topic: str
    partition: int
    log_start: int
    log_end: int
    compacted: bool
    log_dirs: tuple[str, ...] = ()
    """Of the broker whose replica stands for the topic, where log directories are read; empty if none has it."""


class Places(NamedTuple):
    places: tuple[Place, ...]
    cluster_id: str | None


def of_logs(paths: Sequence[str], topics: Sequence[str], optional: Container[str] = ()) -> Places:
    """The topics' partitions in brokers' log directories. Of the replicas that one stands for the topic which is in the
    latest leader epoch, and of these the longest: what the topic's readers get, or would get of its leader.

    ConfigurationError for a topic that is not there, unless it is `optional`."""
    from kwire.audit.evidence.files import replicas
    from kwire.pipeline.layout import broker_of, log_dirs

    folders = log_dirs(paths)
    of_broker: dict[int, list[str]] = {}
    for folder in folders:
        of_broker.setdefault(broker_of(folder), []).append(str(folder))
    best: dict[tuple[str, int], tuple[tuple[int, int], Place]] = {}
    for each in replicas(paths, tuple(topics)):
        rank = (each.epochs[-1][0] if each.epochs else -1, each.log_end)
        key = each.topic, each.partition
        if key not in best or rank > best[key][0]:
            dirs = tuple(of_broker[each.broker])
            is_cleaned = each.cleaned is not None
            best[key] = rank, Place(*key, each.log_start, each.log_end, is_cleaned, dirs)
    found = {topic for topic, _ in best}
    for topic in topics:
        if topic not in found and topic not in optional:
            raise _is_nowhere(topic, found)
    ids = {text for folder in folders if (text := _cluster_id(folder)) is not None}
    if len(ids) > 1:
        raise ConfigurationError(f"the log directories are of {len(ids)} clusters: {sorted(ids)}")
    return Places(tuple(best[key][1] for key in sorted(best)), next(iter(ids), None))


def with_absent(
    found: Sequence[Place], topics: Collection[str], named: Collection[tuple[str, int]]
) -> tuple[Place, ...]:
    """The places, and beside them empty ones for partitions of which the ledger has records (`named`) and which are not
    there: what was acknowledged in them is lost. A topic without any has partition 0, empty: brokers may make the log
    with the first record. ConfigurationError if the ledger has records, and none of the topics is there."""
    known = {place[:2] for place in found}
    absent = {each for each in named if each[0] in topics} - known
    if absent and not known:
        raise _is_nowhere(min(absent)[0], ())
    without = set(topics) - {topic for topic, _ in (known | absent)}
    absent |= {(topic, 0) for topic in without}
    return tuple(sorted([*found, *(Place(*each, 0, 0, False) for each in absent)]))


def of_ledger(files: Iterable[str]) -> set[tuple[str, int]]:
    """The partitions of which files of a ledger have records."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    found: set[tuple[str, int]] = set()
    form = ds.ParquetFileFormat(read_options={"dictionary_columns": ["topic"]})
    for batch in ds.dataset(list(files), format=form).to_batches(columns=["topic", "partition"]):
        rows = pa.Table.from_batches([batch]).group_by(["topic", "partition"]).aggregate([])
        found |= {(row["topic"], row["partition"]) for row in rows.to_pylist()}
    return {each for each in found if each[1] is not None}


def begin_now(places: Iterable[Place], bootstrap: str | None) -> list[Place]:
    """The places, each beginning where its log begins now: retention goes on while logs are read, and what it removed
    meanwhile is no loss. Of the cluster at `bootstrap`, else of the log directories; where nobody says it any more, as
    before."""
    places = list(places)
    starts = _starts_of_logs(places) if bootstrap is None else _starts_of_cluster(places, bootstrap)
    return [
        place._replace(log_start=min(max(place.log_start, starts.get(place[:2], 0)), place.log_end))
        for place in places
    ]


def _starts_of_logs(places: list[Place]) -> dict[tuple[str, int], int]:
    from kwire.audit.evidence.files import replicas

    found = {}
    for log_dirs in {place.log_dirs for place in places if place.log_dirs}:
        mine = {place[:2] for place in places if place.log_dirs == log_dirs}
        topics = tuple(sorted({topic for topic, _ in mine}))
        indexes = frozenset(partition for _, partition in mine)
        for each in replicas(log_dirs, topics, indexes):
            if each[:2] in mine:
                found[each[:2]] = each.log_start
    return found


def _is_nowhere(topic: str, found: Collection[str]) -> ConfigurationError:
    there = f"; there are {', '.join(sorted(found)[:10])}" if found else ""
    return ConfigurationError(f"topic {topic} is in none of the log directories{there}")


def _cluster_id(folder: Path) -> str | None:
    from kwire.pipeline.layout import Files

    return read_meta_properties(Files(folder)).get("cluster.id")


def of_cluster(bootstrap: str, topics: Sequence[str]) -> Places:
    """The topics' partitions on a running cluster, up to their high watermarks."""
    return _asked(bootstrap, lambda client: _places(client, topics))


def _starts_of_cluster(places: list[Place], bootstrap: str) -> dict[tuple[str, int], int]:
    try:
        return _asked(bootstrap, lambda client: _starts(client, places))
    except ConfigurationError:  # what was read has been read
        return {}


def _asked(bootstrap: str, steps: Callable[[Client], Steps[_Answer]]) -> _Answer:
    from kwire.client.admin import CONNECTION_SECONDS, NoBrokerError
    from kwire.client.blocking import Client
    from kwire.client.connection import NoResponseError, parse_address
    from kwire.client.retries import repeat
    from kwire.protocol.errors import KafkaError

    try:
        addresses = [parse_address(text) for text in bootstrap.split(",")]
    except ValueError as error:
        raise ConfigurationError(f"--bootstrap: {error}") from None
    client = Client(lambda: addresses, CONNECTION_SECONDS, "kwire-audit")
    try:
        # Audits run while brokers die, and leaders move.
        return client.run(repeat(lambda: steps(client), _LEADERLESS_SECONDS))
    except (NoBrokerError, NoResponseError, KafkaError) as error:
        raise ConfigurationError(f"--bootstrap {bootstrap}: {error}") from None
    finally:
        client.close()


def _starts(client: Client, places: list[Place]) -> Steps[dict[tuple[str, int], int]]:
    from kwire.client.admin import EARLIEST

    metadata = yield from client.metadata(sorted({place.topic for place in places}))
    brokers = client.brokers_in(metadata)
    leaders = {
        (topic.name, each.partition_index): brokers.get(each.leader_id)
        for topic in metadata.topics
        for each in topic.partitions
    }
    found = {}
    for place in places:
        leader = leaders.get(place[:2])
        if leader is not None:
            found[place[:2]] = yield from client.offset(leader, *place[:2], EARLIEST)
    return found


def _places(client: Client, topics: Sequence[str]) -> Steps[Places]:
    from kwire.client.admin import EARLIEST, LATEST
    from kwire.protocol.errors import ErrorCode, KafkaError

    metadata = yield from client.metadata(topics)
    for each in metadata.topics:
        if each.error_code:
            raise ConfigurationError(f"topic {each.name} is not in the cluster")
    brokers = client.brokers_in(metadata)
    found = []
    for each in sorted(metadata.topics, key=lambda one: str(one.name)):
        compacted = yield from _is_compacted(client, next(iter(brokers.values())), each.name)
        for partition in sorted(each.partitions, key=lambda one: int(one.partition_index)):
            index = partition.partition_index
            leader = brokers.get(partition.leader_id)
            if leader is None:
                text = f"{each.name}-{index} has no leader that could be read"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text)
            start = yield from client.offset(leader, each.name, index, EARLIEST)
            end = yield from client.offset(leader, each.name, index, LATEST)
            found.append(Place(each.name, index, start, end, compacted))
    return Places(tuple(found), metadata.cluster_id)


def _is_compacted(client: Client, address: tuple[str, int], topic: str) -> Steps[bool]:
    from kwire.client.admin import TOPIC_RESOURCE
    from kwire.protocol.schemas.configs import DescribeConfigsRequest, DescribeConfigsResource

    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=["cleanup.policy"]
    )
    response = yield from client.ask_at(address, DescribeConfigsRequest(resources=[resource]))
    return any(
        "compact" in (config.value or "")
        for result in response.results
        for config in result.configs
    )
