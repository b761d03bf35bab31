"""The controller's state, replayed from journal records, and the journal's interface.

Answers to the images of KRaft's metadata log (TopicsImage, ClusterImage, ConfigurationsImage) and
to the state table of kafka.controller.PartitionState. A record is (key, value): the value replaces
the key's previous one, None removes it, so a journal that keeps the last record of each key
(compaction) loses nothing. Keys:

    cluster                       {"controller_epoch": 3, "broker_epoch": 7}
    broker/<id>                   {"epoch": 7}; of brokers in other processes also rack,
                                  endpoints, incarnation, live
    topic/<name>                  {"id": "<hex>", "partitions": [<state>, …]}     as created
    partition/<name>/<index>      {"id": "<hex>", "state": <state>}               each later change
    config/<type>/<name>          {"<key>": "<text>", …}     also client quotas, by entity
    producer_ids                  {"next": 2000}
    scram/<mechanism>/<user>      {"salt": …, "storedKey": …, "serverKey": …, "iterations": 4096}
    acl/<type>/<pattern>/<name>   [[principal, host, operation, permission], …]
    token/<id>                    {"owner": "User:alice", …}: fields of Kafka's DelegationTokenRecord
    <state> is [replicas, isr, leader, leader epoch, partition epoch, recovering], and [adding,
    removing] during a reassignment: `replicas` then lists the target, followed by the replicas to
    remove. With eligible leaders (KIP-966) or a last known one, [eligible, last known] follow.

Invariants: only `replay` changes hard state, so a restart restores the state of the last run;
ISR ⊆ replicas and never empty (except with eligible leaders, `eligible_leaders.py`); the leader,
if any, is in the ISR; both epochs only rise. A change of leader, ISR or leader epoch raises the
partition epoch by one; a change of the assignment alone does not (ZooKeeper's version of the
state node).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.metadata import TOPIC_RESOURCE
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Journal(Protocol):
        """Durable storage of the controller's records."""

        def append(self, records: list[Record]) -> None:
            """Append records, all or none.

            KafkaError(KAFKA_STORAGE_ERROR) on an I/O error, DeposedError when another controller
            has appended since `replay` or the last `append` (compare and set)."""
            ...

        def flush(self) -> None:
            """Make all appended records durable; no-op when they are.

            KafkaError(KAFKA_STORAGE_ERROR) on an I/O error: records since the last flush may be
            lost."""
            ...

        def when_flushed(self, callback: Callable[[], None]) -> None:
            """Call back once all appended records are durable: before this returns, unless
            flushes of this journal only begin in `flush`."""
            ...

        def replay(self) -> Iterator[Record]:
            """Iterate over all records, oldest first; called before the first append."""
            ...

        def rewrite(self, records: list[Record]) -> None:
            """Replace all records."""
            ...


# A value is decoded JSON; `replay` checks it.
Record = tuple[str, "Any"]

NON_EXISTENT, NEW, ONLINE, OFFLINE = (
    "NonExistentPartition",
    "NewPartition",
    "OnlinePartition",
    "OfflinePartition",
)
# Target state: the states from which it may be entered (kafka.controller.PartitionState).
PARTITION_MOVES = {
    NEW: (NON_EXISTENT,),
    ONLINE: (NEW, ONLINE, OFFLINE),
    OFFLINE: (NEW, ONLINE, OFFLINE),
    NON_EXISTENT: (OFFLINE,),
}


class DeposedError(KafkaError):
    """Another controller has written to the journal: it is the active one now."""

    def __init__(self) -> None:
        message = "Another controller has taken over."
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


class JournalError(Exception):
    """The journal has a record that this version cannot read; the text names it."""


class PartitionState:
    """The state of one partition; immutable: a change creates a new one."""

    __slots__ = (
        "adding",
        "elr",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "partition_epoch",
        "recovering",
        "removing",
        "replicas",
    )

    def __init__(
        self,
        replicas: list[int],
        isr: list[int],
        leader: int,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        recovering: bool = False,
        adding: list[int] | None = None,
        removing: list[int] | None = None,
        elr: list[int] | None = None,
        last_known_elr: list[int] | None = None,
    ) -> None:
        self.adding = adding or []
        self.removing = removing or []
        self.elr = elr or []
        self.last_known_elr = last_known_elr or []
        self.replicas = replicas
        self.isr = isr
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.recovering = recovering

    @property
    def phase(self) -> str:
        """The state of Kafka's partition state machine."""
        if self.leader >= 0:
            return ONLINE
        # A partition that never had a leader has no log: any replica may be its first leader.
        return NEW if self.leader_epoch == 0 and not self.isr else OFFLINE

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> list[int]:
        """The replicas after the reassignment."""
        removing = self.removing
        return [b for b in self.replicas if b not in removing] if removing else self.replicas

    @property
    def original(self) -> list[int]:
        """The replicas before the reassignment, in the order of `replicas`: their own order is not
        kept."""
        adding = self.adding
        return [b for b in self.replicas if b not in adding] if adding else self.replicas

    def to_json(self) -> list[Any]:
        state = [
            self.replicas,
            self.isr,
            self.leader,
            self.leader_epoch,
            self.partition_epoch,
            self.recovering,
        ]
        if self.elr or self.last_known_elr:
            return [*state, self.adding, self.removing, self.elr, self.last_known_elr]
        return [*state, self.adding, self.removing] if self.reassigning else state

    def with_assignment(
        self, replicas: list[int], adding: list[int], removing: list[int]
    ) -> PartitionState:
        """Return the state with another assignment; no epoch rises."""
        assert set(self.isr) <= set(replicas), "the ISR is part of the assignment"
        assert set(adding) | set(removing) <= set(replicas)
        return PartitionState(
            replicas,
            self.isr,
            self.leader,
            self.leader_epoch,
            self.partition_epoch,
            self.recovering,
            adding,
            removing,
            self.elr,
            self.last_known_elr,
        )

    def with_eligible(self, elr: list[int], last_known_elr: list[int]) -> PartitionState:
        """Return the state with other eligible leaders; no epoch rises."""
        assert not set(elr) & set(self.isr), "an eligible leader replica is not in the ISR"
        return PartitionState(
            self.replicas,
            self.isr,
            self.leader,
            self.leader_epoch,
            self.partition_epoch,
            self.recovering,
            self.adding,
            self.removing,
            elr,
            last_known_elr,
        )

    def with_leader_and_isr(
        self, *, leader: int, isr: list[int], leader_epoch: int, recovering: bool | None = None
    ) -> PartitionState:
        """Return the state with another leader or ISR; the partition epoch rises by one."""
        state = PartitionState(
            self.replicas,
            isr,
            leader,
            leader_epoch,
            self.partition_epoch + 1,
            self.recovering if recovering is None else recovering,
            self.adding,
            self.removing,
            self.elr,
            self.last_known_elr,
        )
        assert self.phase in PARTITION_MOVES[state.phase], f"{self.phase} -> {state.phase}"
        assert leader == NO_LEADER or leader in isr, "the leader is in the ISR"
        assert set(isr) <= set(self.replicas), "the ISR is part of the assignment"
        assert leader_epoch >= self.leader_epoch, "leader epochs only rise"
        return state


class TopicState:
    """A topic: its id and its partitions in index order."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partitions: list[PartitionState]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


def topic_record(name: str, topic_id: bytes, partitions: Iterable[PartitionState]) -> Record:
    return (
        f"topic/{name}",
        {"id": topic_id.hex(), "partitions": [p.to_json() for p in partitions]},
    )


def partition_record(topic: TopicState, index: int, state: PartitionState) -> Record:
    return f"partition/{topic.name}/{index}", {"id": topic.topic_id.hex(), "state": state.to_json()}


def config_record(resource_type: int, name: str, overrides: Mapping[str, str]) -> Record:
    return f"config/{resource_type}/{name}", dict(overrides) or None


class ControllerState:
    """The replayed records, indexed. Read freely; change only through `replay`."""

    __slots__ = (
        "broker_epochs",
        "changed_partitions",
        "collision_names",
        "configs",
        "controller_epoch",
        "last_broker_epoch",
        "names_by_id",
        "next_producer_id",
        "registrations",
        "security",
        "topics",
    )

    def __init__(self) -> None:
        self.controller_epoch = 0
        self.broker_epochs: dict[int, int] = {}  # of every registered broker, alive or not
        self.registrations: dict[int, dict[str, Any]] = {}  # their records
        self.last_broker_epoch = 0
        self.next_producer_id = 0
        self.topics: dict[str, TopicState] = {}
        self.names_by_id: dict[bytes, str] = {}
        self.collision_names: dict[str, str] = {}  # name with "." replaced by "_": the topic
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.security: dict[str, Any] = {}  # values of records of security/, by key
        # Partitions with a record of their own, which a topic deletion removes from the journal.
        self.changed_partitions: dict[str, set[int]] = {}

    def replay(self, record: Record) -> None:
        """Apply one record. JournalError when it cannot be read."""
        key, value = record
        kind, _, rest = key.partition("/")
        try:
            if kind == "topic":
                self._replay_topic(rest, value)
            elif kind == "partition":
                self._replay_partition(rest, value)
            elif kind == "config":
                resource_type, _, name = rest.partition("/")
                self._replay_config((int(resource_type), name), value)
            elif kind == "broker":
                self._replay_broker(int(rest), value)
            elif kind == "deleting":
                self._replay_deleting(rest, value)
            elif kind in ("scram", "acl", "token"):
                self._replay_security(key, value)
            elif kind == "producer_ids":
                self.next_producer_id = value["next"]
            elif kind == "cluster":
                self.controller_epoch = value["controller_epoch"]
                self._raise_last_broker_epoch(value.get("broker_epoch", 0))
            else:
                raise JournalError(f"unknown record {key!r} in the controller's journal")
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            message = f"unreadable record {key!r} in the controller's journal: {error!r}"
            raise JournalError(message) from error

    def _raise_last_broker_epoch(self, epoch: int) -> None:
        self.last_broker_epoch = max(self.last_broker_epoch, epoch)

    def _replay_broker(self, broker_id: int, value: Any) -> None:
        if value is None:
            self.broker_epochs.pop(broker_id, None)
            self.registrations.pop(broker_id, None)
            return
        self.broker_epochs[broker_id] = value["epoch"]
        self.registrations[broker_id] = value
        self._raise_last_broker_epoch(value["epoch"])

    def _replay_deleting(self, name: str, value: Any) -> None:
        """Delete a topic that an earlier version of kwire kept until its last replica was
        deleted."""
        topic = self.topics.get(name)
        if value is not None and topic is not None and topic.topic_id.hex() == value["id"]:
            self._replay_topic(name, None)
            self.configs.pop((TOPIC_RESOURCE, name), None)

    def _replay_topic(self, name: str, value: Any) -> None:
        old = self.topics.pop(name, None)
        if old is not None:
            self.names_by_id.pop(old.topic_id, None)
            self.changed_partitions.pop(name, None)
            self.collision_names.pop(name.replace(".", "_"), None)
        if value is None:
            return
        partitions = [PartitionState(*state) for state in value["partitions"]]
        topic = TopicState(name, bytes.fromhex(value["id"]), partitions)
        self.topics[name] = topic
        self.names_by_id[topic.topic_id] = name
        self.collision_names[name.replace(".", "_")] = name

    def _replay_partition(self, rest: str, value: Any) -> None:
        name, _, number = rest.rpartition("/")
        index = int(number)
        topic = self.topics.get(name)
        if value is None or topic is None or topic.topic_id.hex() != value["id"]:
            return  # the topic was deleted
        state = PartitionState(*value["state"])
        if index == len(topic.partitions):
            topic.partitions.append(state)
        else:
            topic.partitions[index] = state
        self.changed_partitions.setdefault(name, set()).add(index)

    def _replay_config(self, resource: tuple[int, str], value: dict[str, str] | None) -> None:
        if value:
            self.configs[resource] = dict(value)
        else:
            self.configs.pop(resource, None)

    def _replay_security(self, key: str, value: Any) -> None:
        if value is None:
            self.security.pop(key, None)
        else:
            self.security[key] = value

    def records(self) -> list[Record]:
        """Return the shortest list of records that replays to this state."""
        records: list[Record] = [self.cluster_record()]
        records += [(f"broker/{b}", value) for b, value in self.registrations.items()]
        records += [topic_record(t.name, t.topic_id, t.partitions) for t in self.topics.values()]
        if self.next_producer_id:
            records.append(("producer_ids", {"next": self.next_producer_id}))
        records += [config_record(kind, name, c) for (kind, name), c in self.configs.items()]
        records += self.security.items()
        return records

    def cluster_record(self, controller_epoch: int | None = None) -> Record:
        epoch = self.controller_epoch if controller_epoch is None else controller_epoch
        return "cluster", {"controller_epoch": epoch, "broker_epoch": self.last_broker_epoch}

    def topic_config(self, name: str) -> dict[str, str]:
        return self.configs.get((TOPIC_RESOURCE, name), {})
