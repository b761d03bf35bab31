"""The arguments of API handlers: the request's context and the broker's components.

A handler is `handle_<api>(ctx, request)`, returns nothing and runs to completion
(docs/architecture.md). It calls `ctx.reply(response)` exactly once: before it returns, or in a
later step; until then the request is parked. Produce with acks=0 has no response and calls
`ctx.end_without_response()` instead. `ctx.close(reason)` closes the connection (after a failed
acks=0 request, say), with earlier replies still sent.

When a connection ends while a request is parked, the session calls `ctx.disconnected()`, which runs
`ctx.on_disconnect` if the handler has set it, to cancel the wait. Replies to a closed connection
are ignored. An exception raised by a handler is a bug and closes the connection; a refusal is an
error code in the response.
"""

from __future__ import annotations

from typing import Final, Protocol

from kwire.protocol.api import ApiKey
from kwire.replication.core.events import ignore
from kwire.replication.core.metadata import TRANSACTION_STATE_TOPIC
from kwire.replication.core.types import AUTHORIZER_KEY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from random import Random
    from typing import Any

    from kwire.apis.access.authority import BrokerAuthority
    from kwire.coordinator.group_coordinator import GroupCoordinator
    from kwire.protocol.api import RequestHeader
    from kwire.protocol.language.schema import Message
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.controller.controller import Controller
    from kwire.replication.controller.producer_ids import ProducerIds
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.core.quotas import Client
    from kwire.replication.core.work import Steps, WorkQueue
    from kwire.replication.log_dirs.manager import LogManager
    from kwire.replication.member.cluster_member import ClusterMember
    from kwire.replication.member.producer_ids import AllocatedProducerIds
    from kwire.replication.replica.fetch_data import FetchPartitionData
    from kwire.replication.replica.fetch_session import FetchSessionCache
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition
    from kwire.transactions.coordinator import TransactionCoordinator
    from kwire.transactions.verification import Verifier

BUMPS_EPOCH: Final = 5
"""Version of EndTxn whose clients take a new epoch from the response (KIP-890)."""
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The only client id that may write to internal topics (AdminUtils.ADMIN_CLIENT_ID)."""


_READS: Final = frozenset(
    (
        *(ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_FETCH),
        *(ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS),
        *(ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_LOG_DIRS),
        *(ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS),
        *(ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.DESCRIBE_QUORUM),
    )
)
"""APIs without an effect, which are in vain without the connection."""
_UNFINISHED_MAX: Final = 500
"""Requests without their connections that may be at work: queued.max.requests of Kafka."""


class Session(Protocol):
    """A connection as handlers see it; implemented in kwire/session.py."""

    client_id: str | None
    group_id: str | None
    keeps_frame: bool

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
        """Set the client software's name and version, sent in ApiVersions 3 and later (KIP-511)."""
        ...


class Gate(Protocol):
    """Log-ins as handlers see them; implemented in kwire/security/gate.py."""

    @property
    def listeners(self) -> Container[str]: ...

    def is_by_token(self, connection: int) -> bool:
        """Whether a client has logged in by a delegation token."""
        ...

    def handshake(self, ctx: RequestContext, request: Any) -> bool:
        """Begin another log-in of an authenticated client, and answer; False: not now."""
        ...


class Quotas(Protocol):
    """Client quotas as handlers see them; implemented in kwire/quotas/requests.py."""

    def most_fetched(self, ctx: RequestContext, max_bytes: int) -> int:
        """`max_bytes`, or less: what an idle consumer gets without being throttled."""
        ...

    def throttles_fetch(
        self, ctx: RequestContext, partitions: list[tuple[Any, FetchPartitionData]]
    ) -> bool:
        """Record a consumer's response before it is made; whether it is to be empty, as it is throttled."""
        ...


def transaction_version(api_ranges: dict[int, tuple[int, int]]) -> int:
    """The feature transaction.version: 2 (KIP-890) if EndTxn can answer with a new epoch, else 0."""
    return 2 if api_ranges.get(ApiKey.END_TXN, (0, 0))[1] >= BUMPS_EPOCH else 0


class Services:
    """The components of one broker for handlers, made once; tests may leave some out."""

    __slots__ = (
        "api_ranges",
        "authority",
        "clock",
        "cluster_id",
        "config",
        "controller",
        "disk_space",
        "fetch_sessions",
        "gate",
        "group_coordinator",
        "log_dir",
        "log_event",
        "log_manager",
        "member",
        "metadata",
        "node_id",
        "producer_ids",
        "quotas",
        "random",
        "replica_manager",
        "timers",
        "transactions_if_used",
        "verifier_if_used",
        "work",
    )

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        clock: Clock,
        timers: Timers,
        work: WorkQueue,
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
        log_event: LogEvent = ignore,
    ) -> None:
        """`controller` of a standalone broker, or `member` of a cluster's broker: one is None.

        `log_dir`: path in DescribeLogDirs for a store without one; `disk_space`: directory →
        (total, usable) bytes, raises OSError, None if unknown.
        `api_ranges`: API key → advertised (min, max) versions (kwire.apis.served_ranges).
        `log_event`: for causes that a client's author needs and an error code does not show."""
        self.log_event = log_event
        self.transactions_if_used: TransactionCoordinator | None = None
        self.verifier_if_used: Verifier | None = None
        self.api_ranges, self.member = api_ranges or {}, member
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.clock, self.timers = clock, timers
        self.work = work
        self.random = random
        self.config = config
        self.metadata = metadata
        self.replica_manager = replica_manager
        self.log_manager = log_manager
        self.controller = controller
        self.group_coordinator = group_coordinator
        self.producer_ids = producer_ids
        self.fetch_sessions = fetch_sessions
        self.log_dir, self.disk_space = log_dir, disk_space
        self.quotas: Quotas | None = None  # of clients, if there are or were any
        self.gate: Gate | None = None  # where clients of SASL listeners log in, if there are any
        self.authority: BrokerAuthority | None = None  # what clients may do, if that is limited

    def obey_authorizer(self) -> None:
        """Let clients do what access rules allow, if `authorizer.class.name` says so. ConfigError."""
        if self.config.static.get(AUTHORIZER_KEY, "").strip():
            from kwire.apis.access.authority import BrokerAuthority

            self.authority = BrokerAuthority(self)

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator, made when it is first needed: most brokers have none."""
        if self.transactions_if_used is None:
            from kwire.apis.transactions import make_coordinator

            self.transactions_if_used = make_coordinator(self)
        return self.transactions_if_used

    @property
    def verifier(self) -> Verifier:
        """Verifies transactions with their coordinators; made when it is first needed."""
        if self.verifier_if_used is None:
            from kwire.apis.txn_participants import make_verifier

            self.verifier_if_used = make_verifier(self)
        return self.verifier_if_used

    def role_changed(self, partition: Partition, leads: bool) -> None:
        """A ReplicaManager.role_listeners callback, for the transaction coordinator."""
        if partition.topic == TRANSACTION_STATE_TOPIC:
            self.transactions.role_changed(partition, leads)


class RequestContext:
    """One request until it is answered; kwire/session.py has the subclass that replies."""

    __slots__ = (
        "answered",
        "api_key",
        "api_version",
        "client_id",
        "correlation_id",
        "on_disconnect",
        "services",
        "session",
    )

    def __init__(self, header: RequestHeader, session: Session, services: Services) -> None:
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.session = session
        self.services = services
        self.answered = False
        self.on_disconnect: Callable[[], None] | None = None

    @property
    def client(self) -> Client:
        """User, without its type, and client id, for quotas."""
        return self.session.principal.partition(":")[2], self.client_id or ""

    def reply(self, response: Message) -> None:
        """Answer the request, now or later. Call it exactly once: a second call is a bug."""
        raise NotImplementedError

    def reply_in_parts(self, response: Message, *garbage: list[Any] | None) -> None:
        """As `reply`, for a response that may be large: it is encoded in parts.

        `garbage`: long lists that nobody needs any more then; they are emptied in parts."""
        self.reply(response)

    def run_in_parts(self, steps: Steps) -> None:
        """Do the long work of this request; its last step replies or parks the request.

        The frame, and records that are views of it, stay valid meanwhile. When the connection ends,
        what only reads is cancelled; as in Kafka a change that has arrived is made, though nobody
        gets its answer. An exception closes the connection (replication/core/work.py)."""
        work = self.services.work
        job = work.start(steps, self._work_failed)
        if job is not None:
            self.session.keeps_frame = True
            if self.api_key in _READS or work.unfinished > _UNFINISHED_MAX:
                self.on_disconnect = job.cancel

    def _work_failed(self, error: Exception) -> None:
        self.close(f"internal error: {type(error).__name__}")

    def end_without_response(self) -> None:
        """End a request that has no response (Produce with acks=0), in place of `reply`."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Close the connection after earlier replies are sent; `reason` goes to the log."""
        raise NotImplementedError

    def disconnected(self) -> None:
        """Cancel the wait of a parked request whose connection has ended."""
        callback, self.on_disconnect = self.on_disconnect, None
        if callback is not None:
            callback()
