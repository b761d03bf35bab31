"""Entries of DescribeConfigs and CreateTopics: every key of a resource, its value and its source.

Answers to kafka.server.ConfigHelper and KafkaConfigSchema. Values are texts, as clients see them; a password's is None.

Left out: listener-prefixed synonyms ("listener.name.x.…"): such keys are shown, but as keys of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kwire.replication.config.broker_config import TOPIC_SYNONYMS, broker_key
from kwire.replication.config.table import BROKER_KEYS, GROUP_KEYS, INTERNAL_KEYS, TOPIC_KEYS
from kwire.replication.core.types import THROTTLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.config.table import Row

# org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource
DYNAMIC_TOPIC = 1
DYNAMIC_BROKER = 2
DYNAMIC_DEFAULT_BROKER = 3
STATIC_BROKER = 4
DEFAULT = 5
DYNAMIC_BROKER_LOGGER = 6
CLIENT_METRICS = 7
GROUP = 8

_TYPES = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}

Synonym = tuple[str, "str | None", int]

# Broker keys that stand for one setting, the most specific first (DynamicBrokerConfig.brokerConfigSynonyms).
_BROKER_SYNONYMS = {
    names[0][0]: tuple(name for name, _ in names)
    for names in TOPIC_SYNONYMS.values()
    if len(names) > 1
}
_BROKER_SYNONYMS.update(
    {name: names[i:] for names in tuple(_BROKER_SYNONYMS.values()) for i, name in enumerate(names)}
)


class ConfigEntry:
    """One key of a resource as it is shown. `type` and `source` are the wire's numbers."""

    __slots__ = ("name", "read_only", "sensitive", "source", "synonyms", "type", "value")

    def __init__(
        self,
        name: str,
        value: str | None,
        kind: str | None,
        source: int,
        synonyms: list[Synonym],
        read_only: bool = False,
    ) -> None:
        self.name = name
        # A key of unknown type might be a secret: Kafka hides it, too.
        self.sensitive = kind is None or kind == "PASSWORD"
        self.value = None if self.sensitive else value
        self.type = _TYPES.get(kind, 0) if kind else 0
        self.source = source
        self.synonyms = [(n, None, s) for n, _, s in synonyms] if self.sensitive else synonyms
        self.read_only = read_only


def _broker_synonyms(name: str, config: BrokerConfig) -> list[Synonym]:
    """All layers that give `name` a value, the effective one first."""
    names = _BROKER_SYNONYMS.get(name, (name,))
    layers = (
        (config.dynamic, DYNAMIC_BROKER),
        (config.dynamic_default, DYNAMIC_DEFAULT_BROKER),
        (config.static, STATIC_BROKER),
    )
    found: list[Synonym] = [
        (synonym, layer[synonym], source)
        for layer, source in layers
        for synonym in names
        if synonym in layer
    ]
    for synonym in names:
        default = config.default_text(synonym)
        if default is not None:
            found.append((synonym, default, DEFAULT))
    # Kafka drops what stands before the key's own name: a value in hours does not count as one of "….ms".
    while found and found[0][0] != name:
        del found[0]
    return found


def broker_entries(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """Every key of this broker: Kafka's, and what somebody set beyond."""
    yield from (_broker_entry(name, config) for name in _broker_names(config))


def _broker_names(config: BrokerConfig) -> Iterator[str]:
    release = config.release
    hidden = INTERNAL_KEYS if release is None else INTERNAL_KEYS | release.broker_keys_missing
    for name in BROKER_KEYS:
        if name not in hidden or config.is_set(name):
            yield name
    extra = {*config.static, *config.dynamic, *config.dynamic_default} - BROKER_KEYS.keys()
    yield from sorted(extra)


def _kind(name: str, row: Row | None) -> str | None:
    if row is not None:
        return row[0]
    return "LONG" if name in THROTTLES else None


def _broker_entry(name: str, config: BrokerConfig) -> ConfigEntry:
    row = broker_key(name)
    synonyms = _broker_synonyms(name, config)
    return ConfigEntry(
        name,
        config.text(name),
        _kind(name, row),
        synonyms[0][2] if synonyms else DEFAULT,
        synonyms,
        read_only=row is None or row[4] == "read-only",
    )


def cluster_default_entries(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """The cluster-wide dynamic values (resource name ""): only what somebody set."""
    for name, value in sorted(config.dynamic_default.items()):
        row = broker_key(name)
        synonyms: list[Synonym] = [(name, value, DYNAMIC_DEFAULT_BROKER)]
        yield ConfigEntry(
            name, value, _kind(name, row), DYNAMIC_DEFAULT_BROKER, synonyms, row is None
        )


def _topic_names(overrides: Mapping[str, str], config: BrokerConfig) -> Iterator[str]:
    """The topic keys of the release, and those that are set."""
    hidden = frozenset[str]() if config.release is None else config.release.topic_keys_missing
    return (name for name in TOPIC_KEYS if name not in hidden or name in overrides)


def topic_entries(overrides: Mapping[str, str], config: BrokerConfig) -> Iterator[ConfigEntry]:
    """Every key of a topic with these overrides."""
    for name in _topic_names(overrides, config):
        row = TOPIC_KEYS[name]
        server = TOPIC_SYNONYMS.get(name)
        synonyms = _broker_synonyms(server[0][0], config) if server else []
        value: str | None
        if name in overrides:
            value = overrides[name]
            synonyms = [(name, value, DYNAMIC_TOPIC), *synonyms]
        else:
            value = config.topic_default_text(name)
        yield ConfigEntry(name, value, row[0], synonyms[0][2] if synonyms else DEFAULT, synonyms)


def effective_topic_config(
    overrides: Mapping[str, str], config: BrokerConfig
) -> Iterator[tuple[str, str | None, int]]:
    """Name, value, source of every key of a new topic, sorted by name (KafkaConfigSchema: hours count here)."""
    for name in _topic_names(overrides, config):
        if name in overrides:
            yield name, overrides[name], DYNAMIC_TOPIC
            continue
        source = DEFAULT
        for server, _ in TOPIC_SYNONYMS.get(name, ()):
            if config.is_set(server):
                source = (
                    DYNAMIC_BROKER
                    if server in config.dynamic
                    else DYNAMIC_DEFAULT_BROKER
                    if server in config.dynamic_default
                    else STATIC_BROKER
                )
                break
        yield name, config.topic_default_text(name), source


def group_default(name: str, config: BrokerConfig) -> str | None:
    """The broker's value of a group key ("consumer.session.timeout.ms": group.consumer.session.timeout.ms)."""
    return config.text(f"group.{name}") or GROUP_KEYS[name][1]


def group_entries(overrides: Mapping[str, str], config: BrokerConfig) -> Iterator[ConfigEntry]:
    """Every key of a group with these overrides."""
    for name, row in GROUP_KEYS.items():
        default = group_default(name, config)
        synonyms: list[Synonym] = [(name, default, DEFAULT)]
        if name in overrides:
            synonyms.insert(0, (name, overrides[name], GROUP))
        yield ConfigEntry(name, synonyms[0][1], row[0], synonyms[0][2], synonyms)


CLIENT_METRICS_KEYS: dict[str, Row] = {
    "interval.ms": ("INT", "300000", "[100,...,3600000]", "MEDIUM", "cluster-wide"),
    "match": ("LIST", "", None, "MEDIUM", "cluster-wide"),
    "metrics": ("LIST", "", None, "MEDIUM", "cluster-wide"),
}


def client_metrics_entries(overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """What is set of a client metrics subscription (KIP-714); Kafka gives no types here."""
    for name, value in sorted(overrides.items()):
        entry = ConfigEntry(name, value, "STRING", CLIENT_METRICS, [])
        entry.type = 0
        yield entry
