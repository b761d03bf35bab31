"""What a cluster holds, for people and for asserts: groups, transactions, records.

Loaded at first use. `str` of each is for people.
"""

from __future__ import annotations

from dataclasses import dataclass

from kwire.errors import BrokerNotAvailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NO_SUCH_GROUP = "Dead"
NO_SUCH_TRANSACTION = "Dead"
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_TEXT_CHARACTERS = 200  # of a key or a value, in a text for people


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970: of creation or of the append, as the topic is configured; -1: none."""
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    leader_epoch: int
    """The epoch of the leader that appended it; -1: unknown."""

    def __str__(self) -> str:
        key = "" if self.key is None else f"{_short(self.key)}: "
        headers = "".join(f" {name}={_short(value)}" for name, value in self.headers)
        return f"{self.topic}-{self.partition}@{self.offset} {key}{_short(self.value)}{headers}"


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The position of a group in a partition."""

    topic: str
    partition: int
    committed: int | None
    """The committed offset; None: nothing is committed."""
    end: int | None
    """The partition's high watermark; None: without a leader that could be asked."""
    lag: int | None
    """Records from the committed offset to the end; without one, all records of the partition; None
    when the end is unknown."""
    member_id: str | None
    """The member that the partition is assigned to, if any."""
    metadata: str
    """The text that the client committed with the offset."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group."""

    id: str
    client_id: str
    host: str
    """The address of its connection to the coordinator, without the port."""
    instance_id: str | None
    """`group.instance.id` of a static member."""
    partitions: list[tuple[str, int]]
    """Topic and partition of each assigned partition."""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group at its coordinator."""

    id: str
    state: str
    """Kafka's name: Stable, PreparingRebalance, CompletingRebalance, Empty; Dead: no such group."""
    protocol_type: str
    """"consumer" for consumers."""
    assignor: str
    """The protocol that the members agreed on: range, cooperative-sticky, …"""
    coordinator: int
    """A broker's id; -1: the cluster has no group yet."""
    members: list[Member]
    offsets: list[GroupOffset]
    """Of each partition that is assigned or has a committed offset, by topic and partition."""
    similar: str | None = None
    """A group whose name is like this one, if there is no such group."""

    @property
    def lag(self) -> int | None:
        """The lag in all its partitions; None while no partition is assigned or has a committed offset,
        so that `lag == 0` is false before the group has begun, and for a name that is mistyped.

        BrokerNotAvailableError while the end of one is unknown, so that `wait_for` waits."""
        if not self.offsets:
            return None
        found = 0
        for each in self.offsets:
            if each.lag is None:
                raise BrokerNotAvailableError(
                    f"group {self.id}: the end of {each.topic}-{each.partition} is unknown",
                    "LEADER_NOT_AVAILABLE",
                )
            found += each.lag
        return found

    @property
    def known_lag(self) -> int | None:
        """`lag`, but None while the end of a partition is unknown, too: for tables and JSON."""
        lags = [each.lag for each in self.offsets]
        return sum(lag for lag in lags if lag is not None) if lags and None not in lags else None

    def __str__(self) -> str:
        if self.state == NO_SUCH_GROUP and not self.offsets:
            meant = "" if self.similar is None else f"; did you mean {self.similar}?"
            return f"group {self.id}: there is no such group{meant}"
        assignor = f" ({self.assignor})" if self.assignor else ""
        coordinator = f", coordinator {self.coordinator}" if self.coordinator >= 0 else ""
        lags = [each.lag for each in self.offsets if each.lag is not None]
        unknown = "" if len(lags) == len(self.offsets) else " and more"
        lag = f"{sum(lags)}{unknown}" if self.offsets else "-"
        text = f"group {self.id}: {self.state}{assignor}{coordinator}, lag {lag}"
        lines = [text, *(f"  {line}" for line in self._table())]
        idle = [member for member in self.members if not member.partitions]
        lines += [f"  member {_name(member)} has no partitions" for member in idle]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        if not self.offsets:
            return [] if self.members else ["no members, no committed offsets"]
        names = {member.id: _name(member) for member in self.members}
        rows = [("partition", "committed", "end", "lag", "member")]
        for each in self.offsets:
            owner = "-" if each.member_id is None else names.get(each.member_id, each.member_id)
            numbers = (each.committed, each.end, each.lag)
            committed, end, lag = ("-" if number is None else str(number) for number in numbers)
            rows.append((f"{each.topic}-{each.partition}", committed, end, lag, owner))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        return [
            f"{row[0]:{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}"
            f"  {row[3]:>{widths[3]}}  {row[4]}"
            for row in rows
        ]


@dataclass(frozen=True, slots=True)
class TransactionPartition:
    """A partition that an open transaction has added."""

    topic: str
    partition: int
    start: int | None
    """The offset of the transaction's first record there; None: it has none there, or has ended there, or
    no leader answers."""
    stable: int | None
    """The last stable offset: to where consumers with read_committed read; None: no leader answers."""
    end: int | None
    """The high watermark; None: no leader answers."""

    @property
    def holds(self) -> bool:
        """Whether it is this transaction that the last stable offset stands at."""
        return self.start is not None and self.start == self.stable


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id at its coordinator, with its last transaction."""

    id: str
    state: str
    """Kafka's name: Empty (no transaction yet), Ongoing, PrepareCommit, PrepareAbort, CompleteCommit,
    CompleteAbort, …; Dead: no such transactional id."""
    producer_id: int
    producer_epoch: int
    coordinator: int
    """A broker's id; -1: there is no such transactional id."""
    start_ms: int | None
    """Unix milliseconds when the last transaction began; None: none has."""
    timeout_ms: int
    """After this many milliseconds the coordinator aborts an open transaction."""
    partitions: list[TransactionPartition]
    """Of an open transaction those that it has added, and that have not got its marker yet."""
    similar: str | None = None
    """A transactional id like this one, if there is no such id."""

    @property
    def open(self) -> bool:
        """Whether a transaction is going on, or waits for its markers."""
        return self.state in _OPEN

    def __str__(self) -> str:
        if self.state == NO_SUCH_TRANSACTION and self.coordinator < 0:
            meant = "" if self.similar is None else f"; did you mean {self.similar}?"
            return f"transaction {self.id}: there is no such transactional id{meant}"
        begun = ""
        if self.open and self.start_ms is not None:
            from datetime import UTC, datetime

            at = datetime.fromtimestamp(self.start_ms / 1000, UTC)
            begun = f", began {at:%H:%M:%S}.{self.start_ms % 1000:03} UTC"
        text = (
            f"transaction {self.id}: {self.state}{begun}, time-out {self.timeout_ms / 1000:g} s,"
            f" producer {self.producer_id} epoch {self.producer_epoch},"
            f" coordinator {self.coordinator}"
        )
        return "\n".join([text, *(f"  {_position(each)}" for each in self.partitions)])


def _position(found: TransactionPartition) -> str:
    """A partition of a transaction in words."""
    name = f"{found.topic}-{found.partition}"
    if found.end is None:
        return f"{name}: no leader answers"
    if found.start is None:
        return f"{name}: no open records"
    since = f"{name}: open since offset {found.start}"
    if found.holds:
        return f"{since}, holds the last stable offset; end {found.end}"
    return f"{since}, last stable offset {found.stable}, end {found.end}"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a node has reported, or that was asked of the cluster."""

    number: int
    """Rises with each event that was collected: `events(since=…)`."""
    time_ms: int
    """Unix milliseconds, of the node's clock when it happened."""
    node: int | None
    """The broker or controller that reported it; None: it was asked of the cluster."""
    name: str
    """LEADER_ELECTED, KILL_REQUESTED, …"""
    level: str
    """info, warning or error."""
    text: str
    """As the log has it."""
    fields: dict[str, Any]
    """Names and values."""
    words: str
    """In a few words: "orders-0: broker 2 leads in epoch 5"."""

    def __str__(self) -> str:
        where = "" if self.node is None else f"node {self.node}: "
        return f"{self.time_ms / 1000:.3f} {where}{self.text}"


@dataclass(frozen=True, slots=True)
class Request:
    """Requests of a client that a broker keeps: one, or several in a row with the same outcome."""

    broker: int
    client_id: str
    api: str
    """Kafka's name of it: Fetch, JoinGroup, …; "connection closed": the broker closed it."""
    version: int
    """Of the API; -1: none."""
    outcome: str
    """What the response says of which topics or groups: "orders-0: ok"; of a connection why."""
    count: int
    milliseconds_ago: int | None
    """Since the last of them was answered; None: not answered yet."""

    def __str__(self) -> str:
        ago = "now" if self.milliseconds_ago is None else f"-{self.milliseconds_ago / 1000:.3f} s"
        version = "" if self.version < 0 else f" v{self.version}"
        times = "" if self.count == 1 else f" ({self.count} times)"
        client = self.client_id or "?"
        return f"{ago} broker {self.broker} {client} {self.api}{version} {self.outcome}{times}"


@dataclass(frozen=True, slots=True)
class Client:
    """An open connection of a client to a broker."""

    broker: int
    address: str
    """HOST:PORT of the client's side."""
    client_id: str
    """"" while unknown."""
    software: str
    """Name and version that the client tells of itself (KIP-511); "": it does not."""
    group: str | None
    """The group that was joined, or committed for, over this connection."""
    api: str
    """The API and version of the request in hand, else of the last one if requests are kept."""
    idle_ms: int
    """Milliseconds since its last request."""

    def __str__(self) -> str:
        group = "" if self.group is None else f", group {self.group}"
        software = f" ({self.software})" if self.software else ""
        api = f", {self.api}" if self.api else ""
        return (
            f"{self.client_id or '?'}{software} {self.address} at broker {self.broker}{group}{api}"
        )


def _name(member: Member) -> str:
    static = f" ({member.instance_id})" if member.instance_id else ""
    return f"{member.client_id} at {member.host}{static} {member.id}"


def _short(data: bytes | None) -> str:
    """The text of a key or value, cut; what is not UTF-8 as Python writes it."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = repr(data)
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= _TEXT_CHARACTERS else f"{text[:_TEXT_CHARACTERS]}…"
