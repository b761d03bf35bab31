"""The events of the core: name, level, sentence and fields of each.

A component calls `log_event(Event.LEADER_ELECTED, topic=…, …)`, which is `Outbox.log`: it stamps the time
and appends a `Log` effect. The driver formats it: the sentence as a line of text, the fields as keys of JSON
(kwire/server/logs.py). Names and fields are stable: programs read them. The string below each event is for people.

The sentence has fields in braces. A part in brackets is omitted if its field is None or False, or if `previous_X`
equals X. True is shown as the field's name. Fields that the sentence does not need are listed after it. An
event always has all of its fields; None: not applicable, or unknown.

Field names: `topic`, `partition`, `leader` (None: no leader), `leader_epoch`, `partition_epoch`,
`controller_epoch`, `isr`, `broker_id`, `broker_epoch`, `log_dir`, `log_start_offset`, `log_end_offset`,
`high_watermark`; `previous_…`: before the event; `error`: Kafka's name of it; `reason`: a fixed word that a
program may compare; `detail`: the reason in free text.

Not an enum.Enum: one of this size adds 1.3 ms to a start, this 0.2 ms.
"""

from __future__ import annotations

from kwire.replication.core.types import with_singulars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    class LogEvent(Protocol):
        """How a component reports an event: `Outbox.log`, or what stands for it."""

        def __call__(self, event: EventType, /, **fields: object) -> None: ...


DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40  # as in the standard library's logging
"""DEBUG: every step of it. INFO: routine. WARNING: worth a look. ERROR: something is not served any more."""


class EventType:
    """A kind of event. `name` is the attribute that holds it; `more_fields`: those that the sentence does not have."""

    __slots__ = ("level", "more_fields", "name", "sentence")
    name: str

    def __init__(self, level: int, sentence: str, *more_fields: str) -> None:
        self.level = level
        self.sentence = sentence
        self.more_fields = more_fields

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that every event of this kind has, in the order of the sentence."""
        return (*dict.fromkeys(_fields_in(self.sentence)), *self.more_fields)

    def text(self, fields: dict[str, object]) -> str:
        """The sentence with these values, in one line."""
        shown = {name: _shown(name, value) for name, value in fields.items()}
        text = ""
        for number, part in enumerate(self.sentence.replace("]", "[").split("[")):
            if number % 2 == 0 or _applies(part, fields):
                text += part.format_map(shown)
        return with_singulars(text)


_PREVIOUS = "previous_"


def _fields_in(part: str) -> Iterator[str]:
    return (piece.partition("}")[0] for piece in part.split("{")[1:])


def _applies(part: str, fields: dict[str, object]) -> bool:
    """Whether a part in brackets says something."""
    names = list(_fields_in(part))
    changed = [name for name in names if name.startswith(_PREVIOUS)]
    if changed:
        return any(fields[name] != fields[name.removeprefix(_PREVIOUS)] for name in changed)
    return not any(fields[name] is None or fields[name] is False for name in names)


def _shown(name: str, value: object) -> str:
    if value is None:
        return "none"
    if value is True:
        return name
    if isinstance(value, list | tuple):
        separator = ", " if name == "keys" else ","  # names are longer than numbers
        return separator.join(map(str, value)) or "none"
    text = str(value)
    if name == "reason":
        text = text.replace("_", " ")
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return text


def ignore(event: EventType, /, **fields: object) -> None:
    """A `LogEvent` of components that nobody listens to."""


_PARTITION_CHANGE = (
    "{topic}-{partition}: [leader {previous_leader} -> {leader}, ][ISR {previous_isr} -> {isr}, ]"
    "[eligible leaders {previous_elr} -> {elr}, ][replicas {previous_replicas} -> {replicas}, ]"
    "[{recovering}, ]leader epoch {leader_epoch}, partition epoch {partition_epoch} ({reason})"
)
_BROKER = "broker {broker_id} (epoch {broker_epoch})"
_NOT_FOLLOWED = "{topic}-{partition} is not followed any more (leader {leader}): {detail}"
_CUT = "{topic}-{partition} cut from {previous_log_end_offset} to {log_end_offset}"


class Event:
    """The events of brokers and controllers. Names are never reused for something else."""

    # --- Controllers

    CONTROLLER_ELECTED = EventType(
        INFO,
        "controller {controller_id} is active with epoch {controller_epoch};"
        " {brokers} brokers, {topics} topics",
    )
    """A controller has become the active one. `brokers`, `topics`: how many its journal has."""
    CONTROLLER_STANDBY = EventType(INFO, "controller {controller_id} stands by")
    """One of several controllers waits for the active one to stop or to fail."""
    CONTROLLER_RESIGNED = EventType(
        WARNING, "the controller of epoch {controller_epoch} has resigned: {detail}", "reason"
    )
    """The active controller has given up: another took over (`deposed`), its journal or lease cannot be written
    (`storage_error`), or all brokers are silent (`isolated`).
    To do: nothing where another controller takes over; for `storage_error` look at its disk."""
    CONTROLLER_STOPPED = EventType(
        INFO, "the controller of epoch {controller_epoch} has resigned: it stops"
    )
    """The active controller is being stopped in order and lets another one take over at once."""
    CONTROLLER_TAKE_OVER_FAILED = EventType(
        ERROR, "controller {controller_id} cannot take over: {detail}"
    )
    """A standby could not become the active one; it tries again. To do: look at the disk that the controllers share."""
    JOURNAL_TRUNCATED = EventType(
        WARNING,
        "cut {size_bytes} torn or damaged bytes off the controller's journal, kept in {file}",
    )
    """At start: the last record was not whole (a power cut, a full disk) and had no effect yet; or the file is damaged,
    and all topics and changes in what follows are gone. `file` has what was cut off."""

    # --- Brokers, as the controller sees them

    BROKER_REGISTERED = EventType(
        INFO,
        "broker {broker_id} has registered with epoch {broker_epoch}",
        "rack",
        "controller_epoch",
    )
    """A broker has started, or is back."""
    BROKER_FENCED = EventType(
        WARNING, _BROKER + " has failed: {detail}", "reason", "controller_epoch"
    )
    """The controller counts a broker as dead; its partitions get other leaders now. `connection_lost`: its connection
    has ended; `session_timeout`: it was silent for `broker.session.timeout.ms`: it stood still, or was cut off;
    `unreachable`: a new controller cannot connect to it; `registered_again`: it came back before anybody missed it.
    To do: nothing where the test has killed it."""
    BROKER_RUN_ENDED = EventType(
        INFO, _BROKER + " ended with the previous run: {detail}", "reason", "controller_epoch"
    )
    """The whole cluster starts again: the journal still has the broker of the run before. It is `registered_again`, or
    `unreachable` until then. BROKER_FENCED once a broker of before has sent a request: only the controller is new."""
    BROKER_SHUTTING_DOWN = EventType(
        INFO, "broker {broker_id} is shutting down", "broker_epoch", "controller_epoch"
    )
    """A controlled shutdown begins: leaderships are moved away."""
    BROKER_SHUT_DOWN = EventType(
        INFO, _BROKER + " is gone after its shutdown: {detail}", "reason", "controller_epoch"
    )
    """A broker that was shutting down is gone."""
    BROKER_UNREGISTERED = EventType(
        INFO, _BROKER + " is gone: {detail}", "reason", "controller_epoch"
    )
    """A broker was unregistered by `kafka-cluster unregister`; one that is alive registers again at once."""
    BROKER_REQUEST_FAILED = EventType(
        WARNING, "broker {broker_id} answered a {request} with {error}", "controller_epoch"
    )
    """A broker has refused a request of the controller. STALE_CONTROLLER_EPOCH: this controller is deposed and does
    not know it yet; STALE_BROKER_EPOCH: the broker has been started again meanwhile. Both pass by themselves."""
    BROKER_REPLICA_OFFLINE = EventType(
        WARNING,
        "{topic}-{partition}: broker {broker_id} cannot read its log",
        "controller_epoch",
    )
    """A broker has told the controller that a replica is on a disk that failed; others lead now.
    To do: see LOG_DIR_FAILED of that broker."""

    # --- Topics and partitions, as the controller decides

    TOPIC_CREATED = EventType(
        INFO,
        "{topic} has been created: {partitions} partitions, replication factor {replication_factor}",
        "topic_id",
        "controller_epoch",
    )
    """A new topic. `partitions`: how many."""
    TOPIC_DELETED = EventType(INFO, "{topic} has been deleted", "topic_id", "controller_epoch")
    """A topic is gone; brokers delete their replicas now."""
    REPLICA_DELETION_FAILED = EventType(
        WARNING,
        "{topic}-{partition} could not be deleted on broker {broker_id}: {error}",
        "controller_epoch",
    )
    """A broker could not delete a replica of a deleted topic: it will be a stray there (STRAY_REPLICA_KEPT)."""
    LEADER_ELECTED = EventType(INFO, _PARTITION_CHANGE, "controller_epoch")
    """A partition has got another leader, one of the in-sync replicas."""
    UNCLEAN_LEADER_ELECTED = EventType(WARNING, _PARTITION_CHANGE, "controller_epoch")
    """A replica outside the ISR leads: records that only the others had are lost. `recovering`: until the leader has
    said that it is done.
    To do: switch `unclean.leader.election.enable` off where records matter more than availability."""
    PARTITION_OFFLINE = EventType(WARNING, _PARTITION_CHANGE, "controller_epoch")
    """A partition has no leader: none of its in-sync replicas is alive. The ISR stays; clients
    are answered LEADER_NOT_AVAILABLE.
    To do: start one of the brokers in the ISR."""
    PARTITION_WAITING = EventType(INFO, _PARTITION_CHANGE, "controller_epoch")
    """The whole cluster starts again (BROKER_RUN_ENDED), and none of a partition's in-sync replicas has registered
    yet: the first one that does leads. As PARTITION_OFFLINE until then.
    To do: if no LEADER_ELECTED follows, start one of the brokers in the ISR."""
    ISR_SHRUNK = EventType(INFO, _PARTITION_CHANGE, "controller_epoch")
    """A replica has left the in-sync set; the leader stays."""
    ISR_EXPANDED = EventType(INFO, _PARTITION_CHANGE, "controller_epoch")
    """A follower has caught up and joined the in-sync set."""
    REASSIGNMENT_STARTED = EventType(INFO, _PARTITION_CHANGE, "controller_epoch")
    """Replicas are being added or removed."""
    REASSIGNMENT_COMPLETED = EventType(INFO, _PARTITION_CHANGE, "controller_epoch")
    """The new replicas are in sync, the old ones are gone."""
    REASSIGNMENT_CANCELLED = EventType(INFO, _PARTITION_CHANGE, "controller_epoch")
    """A reassignment was cancelled: replicas that were added go again."""
    PARTITION_CHANGED = EventType(INFO, _PARTITION_CHANGE, "controller_epoch")
    """Anything else of a partition: it has recovered, or its eligible leader replicas (KIP-966) have changed."""

    # --- Leaders and their in-sync replicas

    ISR_SHRINK_PROPOSED = EventType(
        INFO,
        "{topic}-{partition}: shrinking ISR from {previous_isr} to {isr}: out of sync with end offset"
        " {log_end_offset} (high watermark {high_watermark}): {detail}",
        "leader_epoch",
    )
    """The leader asks the controller to put replicas out that have not caught up for `replica.lag.time.max.ms`; then
    ISR_UPDATED. `detail`: each with its end offset, and when it was caught up last."""
    ISR_EXPAND_PROPOSED = EventType(
        INFO,
        "{topic}-{partition}: expanding ISR from {previous_isr} to {isr}: replica {broker_id} has reached"
        " offset {replica_end_offset}, the high watermark is {high_watermark}",
        "leader_epoch",
        "log_end_offset",
    )
    """The leader asks the controller to take in a follower that has caught up; then ISR_UPDATED."""
    ISR_UPDATED = EventType(
        INFO,
        "{topic}-{partition}: ISR updated to {isr}, partition epoch {partition_epoch}",
        "previous_isr",
        "leader_epoch",
    )
    """The controller has agreed to what the leader proposed."""
    ISR_UPDATE_REFUSED = EventType(
        INFO, "{topic}-{partition}: ISR {isr} answered {error}: {detail}", "leader_epoch"
    )
    """The controller has not agreed: it knows more than the leader, as a rule. `detail`: what the leader does now."""
    ALTER_PARTITION_REFUSED = EventType(
        WARNING, "AlterPartition answered {error}: sent again until it is not"
    )
    """The controller has refused a whole request for ISR changes. Passes: NOT_CONTROLLER, STALE_BROKER_EPOCH."""
    STALE_CONTROLLER_REFUSED = EventType(
        WARNING,
        "refused an order of the controller of epoch {stale_controller_epoch}:"
        " there is one of epoch {controller_epoch}",
    )
    """An order of a deposed controller that does not know it yet."""

    NODE_UNAUTHORIZED = EventType(
        WARNING,
        "{principal} may not send {api}, which nodes of this cluster do: it has no CLUSTER_ACTION",
    )
    """A broker or controller whose user has no rights at this node, or a client that takes itself for one. Logged once
    for each user.
    To do: name the user that nodes log in as in `super.users` of all nodes, `User:ANONYMOUS` if they do not log in."""

    # --- Followers

    FOLLOWER_FETCHER_STARTED = EventType(
        DEBUG,
        "{topic}-{partition} follows broker {leader} from offset {offset}, leader epoch {leader_epoch}",
    )
    """A replica has become a follower, or follows in a new leader epoch."""
    FOLLOWER_FENCED = EventType(INFO, _NOT_FOLLOWED, "leader_epoch", "error")
    """The leader is in a later epoch than the follower: passes when the controller tells the follower."""
    FOLLOWER_FETCHER_FAILED = EventType(WARNING, _NOT_FOLLOWED, "leader_epoch", "error")
    """A follower has given up; the replica stays behind and out of the ISR until there is a new leader.
    To do: read `detail`; start the broker again."""
    PARTITION_FETCH_FAILED = EventType(
        WARNING,
        "{topic}-{partition} cannot be fetched from broker {leader}, tried again: {detail}[ {error}]",
        "leader_epoch",
    )
    """The leader has answered with an error, or what cannot be used; again after `replica.fetch.backoff.ms`."""
    LEADER_UNREACHABLE = EventType(
        WARNING,
        "broker {leader} cannot be fetched from, tried again: {detail}[ {error}] ({partitions} partitions)",
    )
    """A follower cannot fetch from a broker: logged once until it answers; then LEADER_REACHABLE.
    To do: nothing where the broker was killed or cut off on purpose."""
    LEADER_REACHABLE = EventType(INFO, "broker {leader} is fetched from again")
    """The broker of an earlier LEADER_UNREACHABLE answers again."""
    LOG_TRUNCATED = EventType(INFO, _CUT + ": {detail}", "leader", "leader_epoch", "high_watermark")
    """A follower drops records that its leader lacks: no acks=all ones, unless after UNCLEAN_LEADER_ELECTED."""
    LOG_TRUNCATED_BELOW_HIGH_WATERMARK = EventType(
        WARNING,
        _CUT + ", below its high watermark {high_watermark}: {detail}",
        "leader",
        "leader_epoch",
    )
    """A follower gives up records that had been committed.
    To do: look for an UNCLEAN_LEADER_ELECTED before; without one please report it."""

    # --- Logs

    SEGMENTS_DELETED = EventType(
        INFO,
        "{log}: deleted {segments} segment(s) before offset {log_start_offset}: {detail}",
        "topic",
        "partition",
        "reason",
    )
    """Retention, or DeleteRecords. `log`, here and below: the partition's directory."""
    SEGMENT_DELETION_FAILED = EventType(WARNING, "{log}: {detail}", "topic", "partition")
    """Files of segments that are out of the log already could not be deleted."""
    RECOVERY_TRUNCATED = EventType(
        WARNING,
        "{log}: cut {size_bytes} bytes from segment {segment} at position {position}, offset {log_end_offset}:"
        " {detail}",
        "topic",
        "partition",
    )
    """At start: the end of a log is not whole, after a power cut for example, and was cut off.
    To do: replicas get the records again from their leader; a topic with one replica has lost them."""
    RECOVERY_DELETED_SEGMENTS = EventType(
        WARNING,
        "{log}: deleted {segments} later segment(s) from offset {offset} on:"
        " segment {segment} before them was cut",
        "topic",
        "partition",
    )
    """At start: see RECOVERY_TRUNCATED."""
    RECOVERY_EMPTIED_LOG = EventType(
        WARNING,
        "{log}: deleted all segments: the log end {log_end_offset} is below the log start {log_start_offset}",
        "topic",
        "partition",
    )
    """At start: what is left of a log after a power cut ends before its first record that is not deleted."""
    INDEXES_REBUILT = EventType(
        INFO, "{log}: rebuilt the indexes of {file}: one was {reason}", "topic", "partition"
    )
    """At start: an index file is `missing` or `damaged`; nothing is lost."""
    INDEX_DELETED = EventType(
        INFO, "{log}: deleted {file}: there is no segment for it", "topic", "partition"
    )
    """At start: an index of a segment that is gone."""
    TOPIC_ID_IGNORED = EventType(INFO, "{log}: ignored {detail}", "topic", "partition")
    """At start: `partition.metadata` cannot be read, after a power cut for example; it is written again."""
    SEGMENT_REPLACED = EventType(
        INFO, "{log}: completed the replacement of {file}", "topic", "partition"
    )
    """At start: compaction was interrupted after its last step but one."""

    # --- Log directories

    LOG_DIR_FAILED = EventType(
        ERROR,
        "log directory[ {log_dir}] is offline, nothing in it is served any more: {detail}",
    )
    """The first I/O error in a log directory, a full disk for example.
    To do: repair the disk and start the broker again; until then the directory stays offline."""
    LOG_DIR_OFFLINE = EventType(ERROR, "log directory[ {log_dir}] is offline: {detail}")
    """At start: a log directory cannot be used; the broker goes on with the others.
    To do: as for LOG_DIR_FAILED."""
    LOG_DIR_REPLICAS_OFFLINE = EventType(
        ERROR, "offline with log directory[ {log_dir}]: {partitions}"
    )
    """Replicas that are lost with their log directory. `partitions`: their names."""
    REPLICA_OFFLINE = EventType(ERROR, "{topic}-{partition} is offline: {detail}")
    """The log of a single replica has failed; its log directory goes on.
    To do: start the broker again."""
    STORAGE_FAULT = EventType(WARNING, "{task}: {detail}", "log_dir")
    """An I/O error that a test has asked for, of a single partition."""
    STORAGE_TASK_FAILED = EventType(ERROR, "{task} failed: {detail}", "log_dir")
    """A periodic task on logs has failed: a checkpoint, retention, a flush. `log_dir` None: not of one directory."""
    STRAY_REPLICA_KEPT = EventType(
        WARNING,
        "the controller knows of no replica of {topic}-{partition} here: set aside as {log}",
    )
    """The topic was deleted, or the replica moved elsewhere, while the broker was away; the directory is renamed and
    never read again.
    To do: delete it when its records are not needed."""
    STRAY_REPLICA_FAILED = EventType(ERROR, "{detail}", "topic", "partition")
    """A replica that the controller does not know of could not be renamed; its partition is offline."""
    REPLICA_MOVE_STARTED = EventType(
        INFO, "{topic}-{partition} begins to move to log directory {log_dir}"
    )
    """AlterReplicaLogDirs (KIP-113)."""
    REPLICA_MOVE_COMPLETED = EventType(
        INFO, "{topic}-{partition} has moved to log directory {log_dir}"
    )
    """The copy is complete and in use."""
    REPLICA_MOVE_FAILED = EventType(ERROR, "moving {topic}-{partition} has failed: {detail}")
    """The replica stays where it was."""

    # --- Compaction

    CLEANING_FAILED = EventType(
        ERROR, "cannot clean {topic}-{partition}, leaving it as it is: {detail}"
    )
    """Compaction of a log has failed; it is left alone until the broker starts again, as in Kafka."""
    RETENTION_FAILED = EventType(
        ERROR, "cannot delete old segments of {topic}-{partition}: {detail}"
    )
    """Retention of a compacted log has failed."""
    CLEANER_CHECKPOINT_FAILED = EventType(
        WARNING, "cannot note how far {topic}-{partition} is clean: {detail}"
    )
    """Costs the next start some work, no more."""
    CLEANER_FAILED = EventType(ERROR, "cannot find out what to clean next: {detail}")
    """The cleaner tries again after `log.cleaner.backoff.ms`."""

    GROUPS_UNREADABLE = EventType(
        WARNING,
        "{topic}-{partition}: the batch at offset {offset} cannot be read, what it says of groups is lost: {detail}",
    )
    """Committed offsets or members are in damaged records. Logged for the first such batch of a partition."""
