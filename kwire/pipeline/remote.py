"""Partitions read by Fetch, where brokers' disks are elsewhere: which offsets of which replica, one task each.

A consumer reads a follower up to that follower's high watermark (KIP-392; FetchParams.fetchOnlyLeader: Fetch v11 or
later), and a replica's own offsets come from it as from a debugging consumer (ListOffsets with replica id -2).
"""

from __future__ import annotations

from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from kwire.client.admin import DEBUGGING_CONSUMER, EARLIEST, LATEST, NoBrokerError
from kwire.client.blocking import Client
from kwire.client.connection import check, parse_address
from kwire.client.offsets import offsets
from kwire.client.retries import repeat
from kwire.errors import ConfigurationError
from kwire.names import did_you_mean
from kwire.pipeline.columns import Where
from kwire.protocol.errors import KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from kwire.client.admin import Steps
    from kwire.client.connection import Address
    from kwire.client.offsets import Key
    from kwire.pipeline.options import Options

CLIENT_ID = "kwire-log"
ANSWER_SECONDS = 10.0
"""How long a broker may take to be reached and to answer."""


class Reach(NamedTuple):
    """Offsets of one replica, to be fetched."""

    where: Where
    """Its `segment` is None."""
    address: Address
    first_offset: int
    end_offset: int
    """Exclusive; at most the replica's high watermark when it was planned."""


class Replica(NamedTuple):
    where: Where
    address: Address
    start: int
    """The log start offset."""
    high_watermark: int
    size: int
    """In bytes; 0 if the broker does not say."""


@contextmanager
def client_of(addresses: tuple[str, ...]) -> Iterator[Client]:
    """A client that asks these HOST:PORT; its errors are ConfigurationError, one line each."""
    known = [parse_address(each) for each in addresses]
    client = Client(lambda: known, ANSWER_SECONDS, CLIENT_ID)
    try:
        yield client
    except (KafkaError, NoBrokerError) as error:
        raise ConfigurationError(f"kwire-log: {error}") from None
    finally:
        client.close()


def plan(options: Options) -> list[Reach]:
    """The ranges of all partitions, in their order, each about `split_bytes` large; whole ones unless for records.

    ConfigurationError: no broker there, no such topic, not a replica."""
    found = []
    for each in replicas(options):
        first = max(each.start, options.starting_offset, _youngest(each, options))
        end = min(each.high_watermark, options.ending_offset)
        per_task = end - first
        if each.size and options.mode == "records":  # a batch may reach over a cut
            span = max(1, each.high_watermark - each.start)
            per_task = max(1, options.split_bytes * span // each.size)
        found += [
            Reach(each.where, each.address, begin, min(begin + per_task, end))
            for begin in (range(first, end, per_task) if per_task > 0 else ())
        ]
    return found


def replicas(options: Options) -> list[Replica]:
    """The wanted replica of each wanted partition that it has, or the leader of each. ConfigurationError."""
    with client_of(options.bootstrap) as client:
        found: list[Replica] = client.run(_replicas(client, options))
        return found


class Ends:
    """The high watermark of each partition, by its name ("orders-0"). An end never goes back."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ends: dict[str, int] = {}

    def latest(self) -> dict[str, int]:
        for each in replicas(self._options):
            name = _name(each)
            self._ends[name] = max(self._ends.get(name, 0), each.high_watermark)
        return dict(self._ends)


def between(options: Options, start: Mapping[str, int], end: Mapping[str, int]) -> Iterator[Reach]:
    """The ranges from one state to a later one. A partition that `start` does not have begins as the options say."""
    for each in replicas(options):
        name = _name(each)
        if name in end:
            first = max(start.get(name, options.starting_offset), each.start)
            last = min(end[name], options.ending_offset)
            if first < last:
                yield Reach(each.where, each.address, first, last)


def _name(replica: Replica) -> str:
    return f"{replica.where.topic}-{replica.where.partition}"


def _youngest(replica: Replica, options: Options) -> int:
    """The offset of the first record that is at least as young as the options say; behind the end if none is."""
    if options.starting_timestamp is None:
        return 0
    key = replica.where.topic, replica.where.partition
    with client_of(options.bootstrap) as client:
        steps = offsets(
            client,
            {key: replica.address},
            options.starting_timestamp,
            replica_id=DEBUGGING_CONSUMER,
        )
        offset = client.run(steps)[key]
    return offset if offset >= 0 else replica.high_watermark


def _replicas(client: Client, options: Options) -> Steps[list[Replica]]:
    metadata = yield from client.metadata(None)
    brokers = client.brokers_in(metadata)
    if options.replica is not None and options.replica not in brokers:
        alive = ", ".join(map(str, sorted(brokers)))
        raise ConfigurationError(
            f"kwire-log: there is no broker {options.replica}, or it is not alive; there are {alive}"
        )
    chosen: dict[int, dict[Key, Address]] = {}
    for key, node in _wanted(metadata, options).items():
        if node not in brokers:
            raise ConfigurationError(
                f"kwire-log: {key[0]}-{key[1]} has no leader; replica=… names another replica"
            )
        chosen.setdefault(node, {})[key] = brokers[node]
    found = []
    for node, keys in chosen.items():
        found += yield from repeat(partial(_of_broker, client, node, keys))
    return sorted(found, key=lambda each: (each.where.topic, each.where.partition))


def _wanted(metadata: Any, options: Options) -> dict[Key, int]:
    """The broker to ask of each wanted partition. ConfigurationError if no broker has it, or no replica of any."""
    there = {str(topic.name): topic.partitions for topic in metadata.topics if not topic.error_code}
    for pattern in options.topics:
        if not any(fnmatchcase(name, pattern) for name in there):
            hint = did_you_mean(pattern, there, 0.7)
            raise ConfigurationError(f"kwire-log: there is no topic {pattern}{hint}")
    patterns = options.topics
    partitions = {
        (name, each.partition_index): each
        for name, several in there.items()
        for each in several
        if not options.partitions or each.partition_index in options.partitions
        if (any(fnmatchcase(name, p) for p in patterns) if patterns else not name.startswith("__"))
    }
    if options.partitions and not partitions:
        numbers = ", ".join(map(str, sorted(options.partitions)))
        raise ConfigurationError(f"kwire-log: no topic has a partition {numbers}")
    if options.replica is None:
        return {key: each.leader_id for key, each in partitions.items()}
    here = {
        key: options.replica
        for key, each in partitions.items()
        if options.replica in each.replica_nodes
    }
    if not here and partitions:
        (topic, number), each = min(partitions.items(), key=lambda item: item[0])
        nodes = ",".join(map(str, sorted(each.replica_nodes)))
        raise ConfigurationError(
            f"kwire-log: broker {options.replica} has no replica of {topic}-{number}: brokers {nodes} have"
        )
    return here


def _of_broker(client: Client, node: int, keys: dict[Key, Address]) -> Steps[list[Replica]]:
    """Start and high watermark of replicas at their broker. KafkaError."""
    address = next(iter(keys.values()))
    starts = yield from offsets(client, keys, EARLIEST, replica_id=DEBUGGING_CONSUMER)
    ends = yield from offsets(client, keys, LATEST, replica_id=DEBUGGING_CONSUMER)
    sizes = yield from _sizes(client, address)
    response = yield from client.ask_at(address, fetch_request(ends, 0, 1))
    check(response.error_code, f"fetch from broker {node}")
    found = []
    for topic in response.responses:
        for each in topic.partitions:
            key = topic.topic, each.partition_index
            check(each.error_code, f"broker {node}, {key[0]}-{key[1]} at offset {ends[key]}")
            where = Where(node, *key, None)
            watermark = min(each.high_watermark, ends[key])
            found.append(Replica(where, address, starts[key], watermark, sizes.get(key, 0)))
    return found


def _sizes(client: Client, address: Address) -> Steps[dict[Key, int]]:
    """Bytes of the broker's replicas; none if it does not say: DescribeLogDirs needs a right that Fetch does not."""
    from kwire.protocol.schemas.cluster import DescribeLogDirsRequest

    try:
        response = yield from client.ask_at(address, DescribeLogDirsRequest(topics=None))
    except KafkaError:
        return {}
    return {
        (topic.name, each.partition_index): each.partition_size
        for result in response.results
        for topic in result.topics
        for each in topic.partitions
        if not each.is_future_key
    }


def fetch_request(positions: Mapping[Key, int], wait_ms: int, max_bytes: int) -> Any:
    from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic

    of_topic: dict[str, list[Any]] = {}
    for (topic, index), offset in positions.items():
        asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        of_topic.setdefault(topic, []).append(asked)
    topics = [FetchTopic(topic=name, partitions=asked) for name, asked in of_topic.items()]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, topics=topics)
