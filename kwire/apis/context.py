"""What a handler of kwire/apis gets: the request's context and the broker's parts.

A handler is `handle_<api>(ctx, request)`; it returns a response message, `PARKED` or `NO_RESPONSE` and runs to
completion (docs/architecture.md §3). A parked request is answered later by exactly one `ctx.reply(response)`.
`ctx.close(reason)` ends the connection (acks=0 failed, say); the broker does it after what was replied before.
When a connection ends while a request is parked the broker calls `ctx.disconnected()`: whoever parked the request
may have set `ctx.on_disconnect` to drop what waits. Replies to a dead connection are ignored by the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kwire.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.coordinator.group_coordinator import GroupCoordinator
    from kwire.protocol.language.schema import Message
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.controller.controller import Controller
    from kwire.replication.controller.producer_ids import ProducerIds
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.log_dirs.manager import LogManager
    from kwire.replication.member.cluster_member import ClusterMember
    from kwire.replication.member.controller_link import AllocatedProducerIds
    from kwire.replication.replica.fetch_session import FetchSessionCache
    from kwire.replication.replica.manager import ReplicaManager

NO_TRANSACTIONS: Final = "kwire has no transactions yet"
_MOST_TOLD: Final = 1000
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id that Kafka lets write to internal topics (AdminUtils.ADMIN_CLIENT_ID)."""


class Parked:
    """The handler will call `ctx.reply` exactly once, later (or has done so already)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "PARKED"


class NoResponse:
    """The request has no answer (Produce with acks=0)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_RESPONSE"


PARKED: Final = Parked()
NO_RESPONSE: Final = NoResponse()


class Session(Protocol):
    """What handlers may know of a connection; kwire/session.py has the real one."""

    @property
    def connection(self) -> int: ...

    @property
    def peer_host(self) -> str: ...

    @property
    def listener_name(self) -> str: ...

    @property
    def client_software_name(self) -> str: ...

    @property
    def client_software_version(self) -> str: ...

    @property
    def principal(self) -> str: ...

    def identify(self, name: str, version: str) -> None:
        """What the client said of itself in ApiVersions 3 and later (KIP-511)."""
        ...


class Services:
    """The parts of one broker, as handlers see them. Filled once by Broker; any part may be absent in a test."""

    __slots__ = (
        "api_ranges",
        "clock",
        "cluster_id",
        "config",
        "controller",
        "disk_space",
        "fetch_sessions",
        "group_coordinator",
        "log_dir",
        "log_manager",
        "member",
        "metadata",
        "node_id",
        "producer_ids",
        "random",
        "replica_manager",
        "timers",
        "transactions_refused",
        "warn",
    )

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        clock: Clock,
        timers: Timers,
        random: Random,
        config: BrokerConfig,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        log_manager: LogManager,
        controller: Controller | None,
        group_coordinator: GroupCoordinator,
        producer_ids: ProducerIds | AllocatedProducerIds,
        fetch_sessions: FetchSessionCache,
        log_dir: str = "/tmp/kwire",
        disk_space: Callable[[str], tuple[int, int]] | None = None,
        api_ranges: dict[int, tuple[int, int]] | None = None,
        member: ClusterMember | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """`controller` when it is here, `member` when it is another node: one of the two.

        `log_dir`: what DescribeLogDirs shows for a store without a path; `disk_space`: of a directory → (total,
        usable) bytes, OSError; None unknown.

        `api_ranges`: key → (min, max) as ApiVersions advertises them (kwire.apis.served_ranges).

        `warn`: told in one line what the author of a client has to know and its error code does not say."""
        self.warn = warn
        self.transactions_refused: set[str] = set()
        self.api_ranges = api_ranges or {}
        self.member = member
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.clock = clock
        self.timers = timers
        self.random = random
        self.config = config
        self.metadata = metadata
        self.replica_manager = replica_manager
        self.log_manager = log_manager
        self.controller = controller
        self.group_coordinator = group_coordinator
        self.producer_ids = producer_ids
        self.fetch_sessions = fetch_sessions
        self.log_dir = log_dir
        self.disk_space = disk_space


def refuse_transactions(ctx: RequestContext, transactional_id: str) -> KafkaError:
    """What a transactional id is answered while there are no transactions, and a warning the first time.

    No code says "not supported" to all clients: most ask again for ever, or for a minute, on what Kafka answers where
    it cannot coordinate. This one is final for Java's, librdkafka, kafka-python, franz-go, sarama and kafkajs."""
    services = ctx.services
    told = services.transactions_refused
    if transactional_id not in told and len(told) < _MOST_TOLD and services.warn is not None:
        told.add(transactional_id)
        services.warn(
            f"refused: client {ctx.client_id!r:.100} with transactional.id {transactional_id!r:.100}: {NO_TRANSACTIONS}"
        )
    return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)


class RequestContext:
    """One request on its way. `respond` and `close` are the broker's, called with the context itself."""

    __slots__ = (
        "_close",
        "_respond",
        "answered",
        "api_key",
        "api_version",
        "client_id",
        "correlation_id",
        "on_disconnect",
        "services",
        "session",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        session: Session,
        services: Services,
        respond: Callable[[RequestContext, Message], None],
        close: Callable[[RequestContext, str], None],
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.session = session
        self.services = services
        self._respond = respond
        self._close = close
        self.answered = False
        self.on_disconnect: Callable[[], None] | None = None

    def reply(self, response: Message) -> None:
        """Answers a parked request. Exactly once: a second call is a bug of the caller."""
        assert not self.answered, "a request is answered once"
        self.answered = True
        self.on_disconnect = None
        self._respond(self, response)

    def close(self, reason: str) -> None:
        """Ends the connection after what was replied before; `reason` goes to the log."""
        self._close(self, reason)

    def disconnected(self) -> None:
        """The connection is gone: what waits for this request's sake need not wait any longer."""
        callback, self.on_disconnect = self.on_disconnect, None
        if callback is not None:
            callback()


def error_of(error: KafkaError) -> tuple[int, str | None]:
    """Code and message for the error fields of a topic or a partition."""
    return int(error.code), error.message


def topic_error(error: ErrorCode, by_topic_id: bool) -> ErrorCode:
    """The unknown-topic error in the words of the request: by id it is UNKNOWN_TOPIC_ID (KIP-516)."""
    if by_topic_id and error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return error
