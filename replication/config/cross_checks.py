"""Settings that are allowed one by one, but not together: refused with both keys named.

Answers to KafkaConfig.validateValues of Kafka 3.9.1 and to the checks of GroupCoordinatorConfig, ShareGroupConfig and
LogConfig. Keys without effect in kwire are checked, too: such a file does not start Kafka.
Left out: what SASL needs (refused altogether, given.py); where KRaft's controllers and their listeners stand
(`controller.quorum.…`), which kwire arranges itself; listeners and advertised ones (kwire/server/listeners.py).
Imported only when a key is given that is part of a check: Kafka's defaults go together.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.config.broker_config import CAPPED_BY_BROKERS, BrokerConfig, ConfigError
from kwire.replication.config.table import BROKER_KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _ranges(prefix: str, what: str) -> Iterator[tuple[str, str]]:
    """min <= max, min <= value <= max."""
    least, value, most = (f"{prefix}.{part}{what}" for part in ("min.", "", "max."))
    yield from ((least, most), (least, value), (value, most))


# The value of the first key must be at most that of the second.
_ORDERED = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("offsets.commit.required.acks", "offsets.topic.replication.factor"),
    *_ranges("group.consumer", "heartbeat.interval.ms"),
    *_ranges("group.consumer", "session.timeout.ms"),
    *_ranges("group.share", "heartbeat.interval.ms"),
    *_ranges("group.share", "session.timeout.ms"),
    *_ranges("group.share", "record.lock.duration.ms"),
)
_MIB = 1 << 20
_IN_A_HOST = "-%._:[]"  # besides letters and digits


def check_together(config: BrokerConfig) -> None:
    """ConfigError for values that exclude each other, the key that was given first."""
    for low, high in _ORDERED:
        if _number(config, low) > _number(config, high):
            _refuse(config, low, "at most", high)
    queued = "queued.max.request.bytes"
    if 0 < _number(config, queued) < _number(config, "socket.request.max.bytes"):
        _refuse(config, "socket.request.max.bytes", "at most", queued)
    delay, idle = "connection.failed.authentication.delay.ms", "connections.max.idle.ms"
    if 0 <= _number(config, idle) <= _number(config, delay):
        _refuse(config, delay, "less than", idle)
    _check_logs(config)
    _check_connections(config)
    _check_versions(config)
    _check_listener_names(config)


def check_dynamic(
    config: BrokerConfig, values: Mapping[str, str | None], *, own: bool, replaces: bool
) -> None:
    """KafkaError(INVALID_REQUEST) when this broker cannot take these dynamic values, its own or the cluster's, or the
    key stores that they name.

    None: the value goes. `replaces`: those that are not among them go, too."""
    layers = [dict(config.dynamic_default), dict(config.dynamic)]
    kept = {} if replaces else layers[own]
    layers[own] = {key: text for key, text in {**kept, **values}.items() if text is not None}
    try:
        changed = BrokerConfig(config.static, brokers=config.brokers)
        changed.set_dynamic(*layers)
        if config.stores is not None:
            config.stores.check(changed)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _number(config: BrokerConfig, key: str) -> int:
    text = _text(config, key)
    assert text is not None, key
    return int(text)


def _text(config: BrokerConfig, key: str) -> str | None:
    """The value as text; Kafka's default, where kwire's depends on the number of brokers."""
    if key in CAPPED_BY_BROKERS and not config.is_set(key):
        return BROKER_KEYS[key][1]
    return config.text(key)


def _shown(config: BrokerConfig, key: str) -> str:
    default = "" if config.is_set(key) else ", the default"
    return f"{key} ({_text(config, key)}{default})"


def _refuse(config: BrokerConfig, low: str, relation: str, high: str) -> None:
    """Blame the key that was given; the other one is named with its value."""
    if not config.is_set(low):
        low, high = high, low
        relation = {"at most": "at least", "less than": "more than"}[relation]
    raise ConfigError(low, _text(config, low), f"must be {relation} {_shown(config, high)}")


def _check_logs(config: BrokerConfig) -> None:
    for topic_key, key, least in (
        ("retention.ms", "log.retention.ms", None),
        ("segment.ms", "log.roll.ms", 1),
        ("segment.jitter.ms", "log.roll.jitter.ms", 0),
    ):
        value = int(config.topic_default_text(topic_key) or 0)
        if least is None and (value == 0 or value < -1):
            raise ConfigError(key, value, "must be unlimited (-1) or, equal or greater than 1")
        if least is not None and value < least:
            raise ConfigError(key, value, f"must be equal or greater than {least}")
    buffer, threads = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    if _number(config, buffer) // max(_number(config, threads), 1) <= _MIB:
        reason = f"must be more than 1 MiB ({_MIB}) for each of {_shown(config, threads)}"
        raise ConfigError(buffer, _text(config, buffer), reason)


def _check_connections(config: BrokerConfig) -> None:
    overrides, limit = "max.connections.per.ip.overrides", "max.connections.per.ip"
    text = _text(config, overrides) or ""
    if _number(config, limit) == 0 and not text.strip():
        raise ConfigError(limit, 0, f"can be set to zero only if {overrides} is set")
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, _, number = item.rpartition(":")
        is_host = host.isascii() and all(each.isalnum() or each in _IN_A_HOST for each in host)
        if not host or not is_host or not number.strip().isdigit():
            raise ConfigError(overrides, text, f"expected host:number, not {item!r}")


def _check_versions(config: BrokerConfig) -> None:
    """Batches of magic 2 are as old as 0.11; from 3.0 on log.message.format.version is ignored."""
    broker, message = "inter.broker.protocol.version", "log.message.format.version"
    magic, version = _magic(_text(config, broker)), _text(config, message)
    if magic < _magic(version):
        reason = f"must be that of {_shown(config, message)}, or later"
        raise ConfigError(broker, _text(config, broker), reason)
    codec = "offsets.topic.compression.codec"
    if magic < 2 and _number(config, codec) == 4:
        raise ConfigError(codec, 4, f"zstd needs more than {_shown(config, broker)}")


def _magic(version: str | None) -> int:
    """The newest format of records that this release knows."""
    major, minor, *_ = [*(version or "").replace("-", ".").split("."), ""]
    if major != "0" or not minor.isdigit():
        return 2
    return 0 if int(minor) < 10 else 1 if int(minor) == 10 else 2


def _check_listener_names(config: BrokerConfig) -> None:
    name, protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if config.is_set(name) and _text(config, name) and config.is_set(protocol):
        raise ConfigError(protocol, _text(config, protocol), f"give only one of it and {name}")
    plane = "control.plane.listener.name"
    given = _text(config, plane)
    if not given:
        return
    if config.is_set("process.roles"):
        raise ConfigError(
            plane, given, f"not with {_shown(config, 'process.roles')}: KRaft has none"
        )
    if given.upper() == (_text(config, name) or config.security_inter_broker_protocol).upper():
        raise ConfigError(plane, given, f"must differ from {_shown(config, name)}")
