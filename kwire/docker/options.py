"""Parses the options of Kafka's command line tools: --name value, --name=value, flags. No sockets.

Corresponds to joptsimple as Kafka uses it: unambiguous prefixes of names are accepted, unknown names
are refused. All tools share one list of names; a tool ignores the options that it does not use.
"""

from __future__ import annotations

from kwire.docker.client import Client, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.client.tls import Trust
    from kwire.security.client import Credentials

# Options without a value.
_FLAGS = frozenset(
    (
        "add",
        "all",
        "all-groups",
        "all-topic-partitions",
        "all-topics",
        "alter",
        "at-min-isr-partitions",
        "cancel",
        "cluster",
        "consumer",
        "create",
        "delete",
        "delete-offsets",
        "describe",
        "disable-rack-aware",
        "dry-run",
        "enable-systest-events",
        "entity-default",
        "exclude-internal",
        "exclude-internal-topics",
        "execute",
        "force",
        "from-beginning",
        "from-latest",
        "generate",
        "help",
        "hide-header",
        "idempotent",
        "if-exists",
        "if-not-exists",
        "list",
        "members",
        "offsets",
        "preserve-throttles",
        "print-config",
        "print-metrics",
        "producer",
        "remove",
        "reset-offsets",
        "show-detailed-stats",
        "skip-message-on-error",
        "state",
        "sync",
        "to-current",
        "to-earliest",
        "to-latest",
        "topics-with-overrides",
        "unavailable-partitions",
        "under-min-isr-partitions",
        "under-replicated-partitions",
        "verbose",
        "verify",
        "version",
    )
)
_VALUES = frozenset(
    (
        "add-config",
        "add-config-file",
        "admin.config",
        "allow-host",
        "allow-principal",
        "batch-size",
        "bootstrap-controller",
        "bootstrap-server",
        "broker",
        "broker-id",
        "broker-list",
        "command-config",
        "command-property",
        "compression-codec",
        "config",
        "consumer-property",
        "consumer-props",
        "consumer.config",
        "coordinator-epoch",
        "delegation-token",
        "delete-config",
        "deny-host",
        "deny-principal",
        "election-type",
        "entity-name",
        "entity-type",
        "fetch-size",
        "formatter",
        "formatter-config",
        "formatter-property",
        "from-file",
        "group",
        "include",
        "isolation-level",
        "key-deserializer",
        "line-reader",
        "max-block-ms",
        "max-memory-bytes",
        "max-messages",
        "max-partition-memory-bytes",
        "max-transaction-timeout",
        "message-send-max-retries",
        "messages",
        "metadata-expiry-ms",
        "num-records",
        "offset",
        "offset-json-file",
        "operation",
        "partition",
        "partition-size-limit-per-server",
        "partitions",
        "path-to-json-file",
        "payload-delimiter",
        "payload-file",
        "principal",
        "producer-epoch",
        "producer-id",
        "producer-property",
        "producer-props",
        "producer.config",
        "property",
        "reader-config",
        "reader-property",
        "reassignment-json-file",
        "record-size",
        "replica-alter-log-dirs-throttle",
        "replica-assignment",
        "replication-factor",
        "reporting-interval",
        "request-required-acks",
        "request-timeout-ms",
        "resource-pattern-type",
        "retry-backoff-ms",
        "security-protocol",
        "shift-by",
        "socket-buffer-size",
        "start-offset",
        "throttle",
        "throughput",
        "time",
        "timeout",
        "timeout-ms",
        "to-datetime",
        "to-offset",
        "topic",
        "topic-id",
        "topic-list",
        "topic-partitions",
        "topics-to-move-json-file",
        "transactional-id",
        "user-principal",
        "value-deserializer",
        "whitelist",
        "zookeeper",
    )
)
_SHORT = {
    "b": "bootstrap-server",
    "c": "config",
    "h": "help",
    "s": "security-protocol",
    "t": "topic",
    "z": "zookeeper",
}
_KNOWN = _FLAGS | _VALUES
SERVER_WAIT_SECONDS = 60.0
"""How long a tool tries to reach a broker: default.api.timeout.ms of Kafka's clients. Scripts rely on
it to wait for a broker."""


class Options:
    """The options given to a tool; an option may be repeated."""

    def __init__(self, arguments: list[str], tool: str = "") -> None:
        """ToolError for an unknown name."""
        self._tool = tool
        self._values: dict[str, list[str]] = {}
        self.words: list[str] = []
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            if not word.startswith("-") or word == "-":
                self.words.append(word)
                continue
            given, separator, value = word.lstrip("-").partition("=")
            name = _full_name(given)
            if not separator and name not in _FLAGS:
                if not rest or rest[0].startswith("--"):
                    raise ToolError(f"Option {given} requires an argument")
                value = rest.pop(0)
            self._values.setdefault(name, []).append(value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def all(self, *names: str) -> list[str]:
        """All values of an option with one of these names."""
        return [value for name in names for value in self._values.get(name, ())]

    def get(self, *names: str) -> str | None:
        """The last value of an option; None if not given."""
        values = self.all(*names)
        return values[-1] if values else None

    def number(self, name: str, default: int) -> int:
        """The integer value of an option. ToolError."""
        text = self.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise ToolError(f"--{name}: not a number: {text}") from None

    def need(self, *names: str) -> str:
        """The value of a mandatory option. ToolError when it is missing."""
        value = self.get(*names)
        if value is None:
            raise ToolError(f"Missing required argument --{names[0]}")
        return value

    def pairs(self, *names: str) -> dict[str, str]:
        """The key=value pairs of an option."""
        pairs = {}
        for item in self.all(*names):
            key, separator, value = item.partition("=")
            if not separator:
                raise ToolError(f"--{names[0]}: expected key=value, not {item}")
            pairs[key] = value
        return pairs

    def assignments(self, name: str) -> dict[str, str]:
        """The key=value words after an option that takes several: --producer-props a=b c=d."""
        return dict(word.split("=", 1) for word in (*self.all(name), *self.words) if "=" in word)

    def numbers(self, name: str) -> list[int] | None:
        """The numbers in an option, with commas between; None if not given. ToolError."""
        text = self.get(name)
        if text is None:
            return None
        try:
            return [int(word) for word in text.split(",")]
        except ValueError:
            raise ToolError(f"--{name}: expected numbers with commas between, not {text}") from None

    def client(
        self, wait_seconds: float = SERVER_WAIT_SECONDS, servers: str | None = None
    ) -> Client:
        """Connect to `servers`, else to --bootstrap-server, else to this container's brokers."""
        named = servers or self.get("bootstrap-server") or self._old_servers()
        credentials, trust = self._access()
        return Client(named or own_address(), wait_seconds, self._tool, credentials, trust)

    def _access(self) -> tuple[Credentials | None, Trust | None]:
        """The log-in and the TLS in a client's properties: those of a file, and those given one by one. ToolError."""
        from kwire.docker.access import FILES, PROPERTIES, access_of, read_properties

        values: dict[str, str] = {}
        for name in FILES:
            for path in self.all(name):
                values.update(read_properties(path))
        for name in PROPERTIES:
            values.update(self.pairs(name))
        return access_of(values) if values else (None, None)

    def _old_servers(self) -> str | None:
        """--broker-list as older tools mean it; for kafka-log-dirs it is a list of broker ids."""
        given = self.get("broker-list")
        return given if given and ":" in given else None


def _full_name(given: str) -> str:
    given = _SHORT.get(given, given)
    if given in _KNOWN:
        return given
    longer = [name for name in _KNOWN if given and name.startswith(given)]
    if len(longer) != 1:
        raise ToolError(f"{given} is not a recognized option")
    return longer[0]


def own_address() -> str:
    """The addresses of this container's brokers, as bootstrap servers."""
    from kwire.docker.container import HEALTH_FILE
    from kwire.launch.health import read_health_file

    return ",".join(read_health_file(HEALTH_FILE)) or "localhost:9092"
