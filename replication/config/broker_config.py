"""Configuration keys: types, defaults and limits, and the effective values of this broker.

Answers to org.apache.kafka.common.config.ConfigDef, KafkaConfig, DynamicBrokerConfig, LogConfig and
ServerTopicConfigSynonyms. `table.py` lists every key of Kafka's. kwire acts on a broker key if `BrokerConfig` has an
attribute for it (dots become underscores), if it is the default of a topic key that kwire acts on, or if it stands in
`KEYS_READ_AS_TEXT`; on a topic key if `LogConfig` has a field for it. All other keys are accepted, checked and shown,
without effect. tests/test_source.py fails for an attribute, a field or a text that no code reads.

Invariants: a key Kafka does not know is kept and reported, never refused; a value that Kafka would refuse raises
`ConfigError` with one line; the highest layer that names a key wins: this broker's dynamic value, the cluster-wide
dynamic value, the static value, the default.
Values that exclude each other are found by cross_checks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.config.table import BROKER_KEYS, TOPIC_KEYS, Row
from kwire.replication.core.log_config import FULL, HEADER, OWN_FIELDS, LogConfig
from kwire.replication.core.types import SECURITY_KEYS, SPANS, TLS_DIRECTORY_KEY, TLS_KEY, USER_KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.replication.config.release import Release
    from kwire.replication.config.stores import Stores

ConfigValue = int | float | bool | str | list[str] | None

# Where kwire's defaults differ from Kafka's: a single test broker should not wait for members or for other brokers.
KWIRE_DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}
# Kafka's defaults, but never more than there are brokers.
CAPPED_BY_BROKERS = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
}

_HOUR_MS = 3600 * 1000
# Topic key: the broker keys that give its default, the most specific first, each with its factor to the topic's unit.
TOPIC_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.downconversion.enable": (("log.message.downconversion.enable", 1),),
    "message.format.version": (("log.message.format.version", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.difference.max.ms": (("log.message.timestamp.difference.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60 * 1000),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}

# What starts a node reads these out of the given values; broker.id is node.id under its old name.
KEYS_READ_AS_TEXT = frozenset({"broker.id", "log.dir", "log.dirs", *SPANS})
EPOCH_BUMP_KEY = "kwire.leader.epoch.bump.on.isr.shrink"
"""A broker that leaves an ISR raises the leader epoch, as with ZooKeeper; not so with KRaft (KAFKA-15021)."""
ROLL_KEY = "kwire.log.cleaner.roll.active"
"""The log cleaner rolls active segments, so that it can clean all records."""
ANY_CONTROLLER_KEY = "kwire.any.connection.may.control"
"""LeaderAndIsr, StopReplica, UpdateMetadata and Envelope of any connection are carried out."""
VALIDATION_KEY = "kwire.record.validation"
"""full: read all records, as Kafka does; header: only where a topic's keys need it. Can change at run time."""
CREATION_WAITS_KEY = "kwire.topic.creation.waits"
"""A request that creates a topic is answered when it exists; if not, first as unknown (Kafka)."""
# As in the table: type, default, valid range, importance, when it can change.
OWN_KEYS: dict[str, Row] = {
    EPOCH_BUMP_KEY: ("BOOLEAN", "true", None, "LOW", "read-only"),
    ROLL_KEY: ("BOOLEAN", "false", None, "LOW", "read-only"),
    ANY_CONTROLLER_KEY: ("BOOLEAN", "false", None, "LOW", "read-only"),
    CREATION_WAITS_KEY: ("BOOLEAN", "true", None, "LOW", "read-only"),
    TLS_KEY: ("STRING", None, "[tls, mtls]", "LOW", "read-only"),
    TLS_DIRECTORY_KEY: ("STRING", None, None, "LOW", "read-only"),
    **dict.fromkeys(USER_KEYS, ("PASSWORD", None, None, "LOW", "read-only")),
    VALIDATION_KEY: ("STRING", FULL, f"[{FULL}, {HEADER}]", "LOW", "cluster-wide"),
}


class ConfigError(Exception):
    """A value that its key does not allow. The text is Kafka's: value, key, what is allowed."""

    def __init__(self, key: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid value {value} for configuration {key}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason


# Keys that begin so are part of a check of several keys, or near one (cross_checks.py).
_CHECKED_TOGETHER = (
    *("connection", "control.plane.", "group.", "inter.broker.", "log.cleaner.", "log.message."),
    *("log.retention.", "log.roll.", "max.connections.", "offsets.", "queued.", "replica."),
    *("security.", "socket.request."),
)
_INTEGER_BITS = {"SHORT": 15, "INT": 31, "LONG": 63}


def parse_value(key: str, row: Row, text: str | None) -> ConfigValue:
    """The typed value of `text`; ConfigError when the type or the valid range of `row` refuses it."""
    value = _parse_type(key, row[0], text)
    if row[2] is not None and value is not None:
        _check_valid(key, row[2], value)
    return value


def _parse_type(key: str, kind: str, text: str | None) -> ConfigValue:
    if text is None:
        return None
    text = text.strip()
    value: ConfigValue = text
    if kind in _INTEGER_BITS:
        digits = text[1:] if text[:1] in ("-", "+") else text
        bits = _INTEGER_BITS[kind]
        # len: int() of a very long text is slow, and no such number fits.
        if not (digits.isascii() and digits.isdigit() and len(digits) < 40):
            raise ConfigError(key, text, f"Not a number of type {kind}")
        value = int(text)
        if not -(1 << bits) <= value < 1 << bits:
            raise ConfigError(key, text, f"Not a number of type {kind}")
    elif kind == "BOOLEAN":
        if text.lower() not in ("true", "false"):
            raise ConfigError(key, text, "Expected value to be either true or false")
        value = text.lower() == "true"
    elif kind == "DOUBLE":
        try:
            value = float(text)
        except ValueError:
            raise ConfigError(key, text, "Not a number of type DOUBLE") from None
    elif kind == "LIST":
        value = [part.strip() for part in text.split(",")] if text else []
    return value


def _check_valid(key: str, valid: str, value: ConfigValue) -> None:
    """Applies a valid range in the notation of Kafka's documentation."""
    if valid == "non-empty string":
        if value == "":
            raise ConfigError(key, value, "String must be non-empty")
    elif valid.startswith("[partitionId]"):
        from kwire.replication.config.throttles import check_throttled_replicas

        check_throttled_replicas(key, value)
    elif ",...," in valid or ",...]" in valid:
        assert isinstance(value, int | float)
        _check_range(key, valid, value)
    elif valid.startswith("(case insensitive) "):
        allowed = valid[20:-1].split(", ")
        if str(value).upper() not in allowed:
            raise ConfigError(
                key, value, f"String must be one of (case insensitive): {', '.join(allowed)}"
            )
    elif valid.startswith("[") and "by_duration" not in valid:
        allowed = valid[1:-1].split(", ")
        for item in value if isinstance(value, list) else [value]:
            if item not in allowed:
                raise ConfigError(key, item, f"String must be one of: {', '.join(allowed)}")


def _check_range(key: str, valid: str, value: int | float) -> None:
    bounds, _, exception = valid.partition(" or ")
    low, _, high = bounds[1:-1].partition(",...")
    if exception:
        if value != int(exception) and not int(low) <= value <= int(high[1:]):
            reason = f"Value must be between {low} and {high[1:]} or equal to {exception}"
            raise ConfigError(key, value, reason)
        return
    if not value >= float(low):  # so that NaN fails too
        raise ConfigError(key, value, f"Value must be at least {low}")
    if high and value > float(high[1:]):
        raise ConfigError(key, value, f"Value must be no more than {high[1:]}")


def broker_key(key: str) -> Row | None:
    """The row of a broker key, Kafka's or kwire's, by its plain name or behind a "listener.name.x." prefix."""
    row = BROKER_KEYS.get(key) or OWN_KEYS.get(key)
    if row is None and key.startswith("listener.name."):
        # listener.name.<listener>.[<mechanism>.]<key>
        parts = key.split(".")
        for start in (3, 4):
            row = BROKER_KEYS.get(".".join(parts[start:]))
            if row is not None:
                return row
    return row


def _check_broker_values(values: Mapping[str, str]) -> None:
    for key, text in values.items():
        row = broker_key(key)
        if row is not None:
            parse_value(key, row, text)


class BrokerConfig:
    """This broker's effective configuration; an attribute for every broker key that code reads.

    `BrokerConfig({"num.partitions": "3"}).num_partitions == 3`. Durations and sizes keep the unit of the key's name.
    Keys that are defaults of topic keys have no attribute: `log_config()` has their values, synonyms resolved.
    The object lives as long as the broker: dynamic values change its attributes (`set_dynamic`).
    """

    advertised_listeners: str | None
    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    broker_heartbeat_interval_ms: int
    broker_rack: str | None
    broker_session_timeout_ms: int
    connections_max_idle_ms: int
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    controller_quorum_fetch_timeout_ms: int
    controller_listener_names: str | None
    default_replication_factor: int
    delete_topic_enable: bool
    eligible_leader_replicas_enable: bool
    fetch_max_bytes: int
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    inter_broker_listener_name: str | None
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    listener_security_protocol_map: str
    listeners: str
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    log_segment_delete_delay_ms: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    node_id: int
    num_partitions: int
    num_replica_fetchers: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    quota_window_num: int
    quota_window_size_seconds: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_receive_buffer_bytes: int
    replica_socket_timeout_ms: int
    request_timeout_ms: int
    security_inter_broker_protocol: str
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int

    _ATTRIBUTES = tuple(__annotations__)
    __slots__ = (
        *_ATTRIBUTES,
        *("_default_log_config", "brokers", "dynamic", "dynamic_default", "listeners_of_change"),
        *("release", "static", "stores"),
    )

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        *,
        brokers: int = 1,
        release: Release | None = None,
    ) -> None:
        """`values`: keys and texts as in server.properties. `brokers`: the cluster's size (some defaults depend on it).
        `release`: whose keys and defaults to show; None: all keys, with Kafka 4's defaults.

        Raises ConfigError for a value that its key does not allow."""
        self.brokers = brokers
        self.release = release
        self.static: dict[str, str] = dict(values or {})
        self.dynamic_default, self.dynamic = dict[str, str](), dict[str, str]()
        self.listeners_of_change: list[Callable[[set[str]], None]] = []
        self.stores: Stores | None = None  # of a broker whose listeners speak TLS
        _check_broker_values(self.static)
        self._pair_ids()
        self._load()

    def _pair_ids(self) -> None:
        """node.id and broker.id are one setting under two names."""
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name in self.static:
                value = self.static[name]
                if self.static.setdefault(other, value) != value:
                    raise ConfigError(name, value, f"must be {other} ({self.static[other]})")

    def _load(self) -> None:
        for attribute in self._ATTRIBUTES:
            key = attribute.replace("_", ".")
            setattr(self, attribute, _parse_type(key, BROKER_KEYS[key][0], self.text(key)))
        self._default_log_config: LogConfig | None = None
        layers = self.static, self.dynamic_default, self.dynamic
        if any(key.startswith(_CHECKED_TOGETHER) for layer in layers for key in layer):
            from kwire.replication.config.cross_checks import check_together

            check_together(self)

    def default_text(self, key: str) -> str | None:
        """The default of a broker key as text: kwire's own where it has one, else Kafka's."""
        for layer in (self.release.defaults if self.release else {}, KWIRE_DEFAULTS):
            if key in layer:
                return layer[key]
        cap, row = CAPPED_BY_BROKERS.get(key), broker_key(key)
        return str(min(cap, self.brokers)) if cap else row[1] if row else None

    def text(self, key: str) -> str | None:
        """The effective value of a broker key as text, None when it has none."""
        for layer in (self.dynamic, self.dynamic_default, self.static):
            if key in layer:
                return layer[key]
        return self.default_text(key)

    def is_set(self, key: str) -> bool:
        """Somebody gave the key a value, statically or dynamically."""
        return key in self.dynamic or key in self.dynamic_default or key in self.static

    def topic_default_text(self, topic_key: str) -> str | None:
        """The value that a topic without an override of its own has, as text."""
        synonyms = TOPIC_SYNONYMS.get(topic_key)
        if synonyms is None:
            return TOPIC_KEYS[topic_key][1] if topic_key in TOPIC_KEYS else None
        for broker_name, factor in synonyms:
            text = self.text(broker_name)
            if text is not None:
                return text if factor == 1 else _scaled(text, factor)
        return TOPIC_KEYS[topic_key][1]

    def set_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Replaces both dynamic layers (cluster-wide, this broker's) and tells the listeners which keys changed."""
        _check_broker_values(default)
        _check_broker_values(own)
        keys = {*self.dynamic_default, *self.dynamic, *default, *own}
        before = {key: self.text(key) for key in keys}
        layers = self.dynamic_default, self.dynamic
        self.dynamic_default, self.dynamic = dict(default), dict(own)
        try:
            self._load()
        except ConfigError:
            self.dynamic_default, self.dynamic = layers
            self._load()
            raise
        changed = {key for key in keys if before[key] != self.text(key)}
        for listener in self.listeners_of_change if changed else ():
            listener(changed)

    def own_flag(self, key: str) -> bool:
        """Whether one of OWN_KEYS is true."""
        return parse_value(key, OWN_KEYS[key], self.static.get(key, OWN_KEYS[key][1])) is True

    def unknown_keys(self) -> list[str]:
        """Static keys that neither Kafka nor kwire knows: kept, shown, without effect."""
        return sorted(key for key in self.static if broker_key(key) is None)

    def unused_keys(self) -> list[str]:
        """Static keys that Kafka knows and kwire does not act on."""
        return sorted(key for key in self.static if broker_key(key) and not acts_on_broker_key(key))

    def log_config(self) -> LogConfig:
        """The LogConfig of a topic without overrides; the same object until a dynamic key changes."""
        if self._default_log_config is None:
            self._default_log_config = LogConfig(
                **{
                    field: _log_value(field, self.topic_default_text(key))
                    for field, key in _log_fields()
                },
                record_validation=(self.text(VALIDATION_KEY) or FULL).strip(),
            )
        return self._default_log_config


def _scaled(text: str, factor: int) -> str:
    value = int(text)
    # Kafka: log.retention.minutes=-1 and log.retention.hours=-1 are "no limit", not minus one hour.
    return "-1" if value < 0 else str(value * factor)


def _log_fields() -> Iterator[tuple[str, str]]:
    """Fields of LogConfig and their topic keys."""
    for field in LogConfig.FIELDS.keys() - OWN_FIELDS:
        yield field, field.replace("_", ".")


# Any: keyword arguments of a generated constructor, whose types the table (and a test) vouch for.
def _log_value(field: str, text: str | None) -> Any:
    key = field.replace("_", ".")
    value = _parse_type(key, TOPIC_KEYS[key][0], text)
    return frozenset(value) if isinstance(value, list) else value


def acts_on_broker_key(key: str) -> bool:
    """Whether kwire acts on a broker key of Kafka's, or it is one of its own."""
    topics = (keys for topic_key, keys in TOPIC_SYNONYMS.items() if acts_on_topic_key(topic_key))
    return (
        key.replace(".", "_") in BrokerConfig._ATTRIBUTES
        or key in KEYS_READ_AS_TEXT
        or (key.endswith(SECURITY_KEYS) and not key.startswith("zookeeper."))
        or key in OWN_KEYS
        or any(key == synonym for keys in topics for synonym, _ in keys)
    )


def acts_on_topic_key(key: str) -> bool:
    """Whether kwire acts on a topic key of Kafka's."""
    field, is_throttle = key.replace(".", "_"), key.endswith(".replication.throttled.replicas")
    return is_throttle or (field in LogConfig.FIELDS and field not in OWN_FIELDS)


def validate_topic_config(overrides: Mapping[str, str | None]) -> None:
    """Raises ConfigError (bad value), or KafkaError(INVALID_CONFIG) for null and unknown keys, in Kafka's words."""
    missing = [key for key, text in overrides.items() if text is None]
    if missing:
        message = f"Null value not supported for topic configs: {','.join(missing)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    for key, text in overrides.items():
        row = TOPIC_KEYS.get(key)
        if row is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")
        try:
            parse_value(key, row, text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def topic_log_config(overrides: Mapping[str, str], config: BrokerConfig) -> LogConfig:
    """What a log of a topic with these overrides obeys. KafkaError(INVALID_CONFIG) when they are not allowed."""
    base = config.log_config()
    if not overrides:
        return base
    validate_topic_config(overrides)
    values = {
        field: _log_value(field, overrides[key]) for field, key in _log_fields() if key in overrides
    }
    result = base.but(**values)
    if result.min_compaction_lag_ms > result.max_compaction_lag_ms:
        message = (
            f"conflict topic config setting min.compaction.lag.ms ({result.min_compaction_lag_ms}) "
            f"> max.compaction.lag.ms ({result.max_compaction_lag_ms})"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    return result
