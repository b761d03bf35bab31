"""Settings that exclude each other: refused as by KafkaConfig.validateValues of 3.9.1, both keys named."""

from __future__ import annotations

import pytest

from kwire.protocol.errors import KafkaError
from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.config.cross_checks import check_dynamic

REFUSED = {
    "wait, socket": {"replica.fetch.wait.max.ms": "4000", "replica.socket.timeout.ms": "1500"},
    "wait, lag": {"replica.fetch.wait.max.ms": "501", "replica.lag.time.max.ms": "500"},
    "compaction lag": {
        "log.cleaner.min.compaction.lag.ms": "5",
        "log.cleaner.max.compaction.lag.ms": "4",
    },
    "acks": {"offsets.commit.required.acks": "3", "offsets.topic.replication.factor": "2"},
    "heartbeat above": {
        "group.consumer.heartbeat.interval.ms": "16000",
        "group.consumer.max.heartbeat.interval.ms": "15000",
    },
    "heartbeat below": {
        "group.consumer.heartbeat.interval.ms": "4000",
        "group.consumer.min.heartbeat.interval.ms": "5000",
    },
    "session": {
        "group.consumer.session.timeout.ms": "70000",
        "group.consumer.max.session.timeout.ms": "60000",
    },
    "limits": {
        "group.share.min.session.timeout.ms": "70000",
        "group.share.max.session.timeout.ms": "60000",
    },
    "lock": {
        "group.share.record.lock.duration.ms": "14000",
        "group.share.min.record.lock.duration.ms": "15000",
    },
    "queue": {"queued.max.request.bytes": "1000", "socket.request.max.bytes": "1001"},
    "idle": {"connections.max.idle.ms": "100", "connection.failed.authentication.delay.ms": "100"},
    "cleaners": {"log.cleaner.dedupe.buffer.size": str(4 << 20), "log.cleaner.threads": "4"},
    "versions": {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.11.0"},
    "zstd": {
        "inter.broker.protocol.version": "0.10.2",
        "log.message.format.version": "0.10.2",
        "offsets.topic.compression.codec": "4",
    },
    "listener and protocol": {
        "inter.broker.listener.name": "PLAINTEXT",
        "security.inter.broker.protocol": "PLAINTEXT",
    },
    "control plane": {"control.plane.listener.name": "A", "inter.broker.listener.name": "A"},
    "control plane of KRaft": {"control.plane.listener.name": "A", "process.roles": "broker"},
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_values_that_exclude_each_other_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(values)
    assert "\n" not in str(refused.value)
    named = [key for key in values if key in str(refused.value)]
    assert len(named) == 2, refused.value


ALLOWED: dict[str, dict[str, str]] = {
    "wait, socket": {"replica.fetch.wait.max.ms": "1500", "replica.socket.timeout.ms": "1500"},
    "wait, lag": {"replica.fetch.wait.max.ms": "500", "replica.lag.time.max.ms": "500"},
    "queue without limit": {"queued.max.request.bytes": "-1", "socket.request.max.bytes": "1001"},
    "never idle": {"connections.max.idle.ms": "-1"},
    "idle": {"connections.max.idle.ms": "101"},
    "acks of Kafka's default": {"offsets.commit.required.acks": "3"},
    "no limit but one": {
        "max.connections.per.ip": "0",
        "max.connections.per.ip.overrides": "127.0.0.1:1, [::1]:2",
    },
    "cleaners": {"log.cleaner.dedupe.buffer.size": str((4 << 20) + 4), "log.cleaner.threads": "4"},
    "old message format under a new broker": {"log.message.format.version": "0.9.0"},
    "message format is ignored": {
        "inter.broker.protocol.version": "3.0",
        "log.message.format.version": "3.9",
    },
}


@pytest.mark.parametrize("values", ALLOWED.values(), ids=ALLOWED)
def test_values_that_go_together_are_taken(values: dict[str, str]) -> None:
    assert BrokerConfig(values).static == values


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"replica.lag.time.max.ms": "200"},
            "Invalid value 200 for configuration replica.lag.time.max.ms: must be at least"
            " replica.fetch.wait.max.ms (500, the default)",
        ),
        ({"connections.max.idle.ms": "99"}, "more than connection.failed.authentication.delay.ms"),
        ({"max.connections.per.ip": "0"}, "only if max.connections.per.ip.overrides is set"),
        ({"max.connections.per.ip.overrides": "127.0.0.1"}, "host:number, not '127.0.0.1'"),
        ({"max.connections.per.ip.overrides": "a b:1"}, "host:number, not 'a b:1'"),
        ({"max.connections.per.ip.overrides": "host:many"}, "host:number, not 'host:many'"),
        ({"log.roll.ms": "0"}, "equal or greater than 1"),
        ({"log.roll.jitter.ms": "-1"}, "equal or greater than 0"),
        ({"log.retention.ms": "0"}, "unlimited (-1)"),
        ({"log.cleaner.dedupe.buffer.size": str(1 << 20)}, "log.cleaner.threads (1, the default)"),
    ],
)
def test_the_key_that_was_given_is_blamed(values: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(values)
    assert text in str(refused.value)
    assert f"for configuration {next(iter(values))}: " in str(refused.value)


def test_dynamic_values_are_held_against_static_ones() -> None:
    config = BrokerConfig({"log.cleaner.threads": "1"})
    check_dynamic(config, {"log.cleaner.threads": "4"}, own=False, replaces=False)
    size = {"log.cleaner.dedupe.buffer.size": str(4 << 20)}
    check_dynamic(config, size, own=False, replaces=False)
    config.set_dynamic(size, {})
    with pytest.raises(KafkaError, match=r"log\.cleaner\.threads \(4\)"):
        check_dynamic(config, {"log.cleaner.threads": "4"}, own=False, replaces=False)
    check_dynamic(config, {"log.cleaner.threads": "4"}, own=False, replaces=True)
    with pytest.raises(KafkaError, match=r"log\.cleaner\.threads \(4\)"):
        check_dynamic(config, {"log.cleaner.threads": "4"}, own=True, replaces=False)
    assert config.dynamic_default == size, "only tried"
    with pytest.raises(ConfigError):
        config.set_dynamic({**size, "log.cleaner.threads": "4"}, {})
    assert config.dynamic_default == size


@pytest.mark.parametrize(
    ("broker", "message", "is_fine"),
    [("0.9.0", "0.10.0", False), ("0.10.0", "0.11.0", False), ("0.10.2", "0.10.0", True)],
)
def test_brokers_are_as_new_as_the_messages(broker: str, message: str, is_fine: bool) -> None:
    """Messages have timestamps from 0.10 on, and come in batches from 0.11 on."""
    keys = {"inter.broker.protocol.version": broker, "log.message.format.version": message}
    if is_fine:
        BrokerConfig(keys)
    else:
        with pytest.raises(ConfigError, match="must be that of"):
            BrokerConfig(keys)
