"""Clients that were connected before a broker was reset: kept, and served by an empty broker.

Kafka has no counterpart. `Cluster.reset` empties brokers that keep their addresses, for the next test.
A client that an earlier test has left open would go on: its Metadata requests would create topics,
as a member of a group it would take partitions from the new test's consumers, and its records would
be found in the new test's topics. It cannot be recognised by its client id, as a test and what
earlier tests left behind live in one process with the same default ids; nor, once it has
reconnected, by its address. A connection that is older than the reset is what tells it apart.

So such a connection is not closed: its client would only open another one, which would be like any
new one. It is served as by a broker of the same id and address that knows no topics and creates
nothing. All clients take that for a cluster that is starting: they ask again, at their own pace, as
long as they live, and are refused each time with a retriable error. Its Metadata lists no other
broker, so that the client has nowhere else to connect to. Members of groups keep their coordinator,
which lets each be alone in a group of its own (`RemovedGroups`): one that is closed can leave, and does
not wait for its session time-out. Who has no coordinator yet is given none: that would be another
connection. Requests that producers and consumers do not send (CreateTopics, say) end the connection.

Left out: a client that had no connection at the reset, or opens another one by itself (after
connections.max.idle.ms, say), is taken for a new one. Who needs more than that takes a new cluster.

Connections of other nodes and of kwire's own administration are returned at their next request,
which has a client id of theirs: nothing on the fast path has to know about any of this.
"""

from __future__ import annotations

from collections import defaultdict

from kwire.apis import BY_KEY
from kwire.apis.context import Services
from kwire.protocol.api import ApiKey, parse_request_header
from kwire.protocol.errors import ErrorCode, MalformedMessage
from kwire.recent import is_internal
from kwire.session import API_VERSIONS, Session, Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.apis import Api, Handler
    from kwire.apis.context import RequestContext
    from kwire.replication.core.events import LogEvent

_SERVED = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.API_VERSIONS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
)
_OF_MEMBERS = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
)
_UNKNOWN = "unknown"  # Session.client_software_name, unless the client has told it
_REASON = "it was connected before the cluster was reset"


class Leftovers(Sessions):
    """The sessions that are older than the last reset. `groups`: the group that each asked for."""

    __slots__ = ("_present", "client_ids", "groups")

    def __init__(self, present: Sessions, services: Services) -> None:
        """`present`: the broker's other sessions, with the broker's own `services`."""
        accepted = present.ranges
        super().__init__(
            _empty(services),
            present.outbox,
            {key: accepted[key] for key in _SERVED},
            {key: self._noting(BY_KEY[key]) for key in _SERVED},
        )
        self._present = present
        self.client_ids: dict[int, str] = {}  # by connection, as far as they have sent a request
        self.groups: dict[int, str] = {}

    def take_all(self) -> None:
        """Take over all sessions that the broker has now."""
        for connection, session in self._present.by_connection.items():
            session.sessions = self
            self.by_connection[connection] = session
            if session.in_flight is not None and session.in_flight.client_id:
                self.client_ids[connection] = session.in_flight.client_id
        self._present.by_connection.clear()

    def receive_frame(self, connection: int, frame: memoryview | bytes) -> None:
        session = self.by_connection.get(connection)
        if session is None:
            return
        client_id = _client_id(frame)
        if is_internal(client_id):
            self._return(session)
            self._present.receive_frame(connection, frame)
            return
        self.client_ids[connection] = client_id
        super().receive_frame(connection, frame)

    def _return(self, session: Session) -> None:
        connection = session.connection
        del self.by_connection[connection]
        self._forget(connection)
        session.sessions = self._present
        self._present.by_connection[connection] = session

    def connection_closed(self, connection: int) -> None:
        super().connection_closed(connection)
        self._forget(connection)

    def _forget(self, connection: int) -> None:
        self.client_ids.pop(connection, None)
        self.groups.pop(connection, None)

    def _refuse(
        self, session: Session, api_key: int, api_version: int, correlation_id: int
    ) -> None:
        if api_key == API_VERSIONS:
            super()._refuse(session, api_key, api_version, correlation_id)
        else:
            self._forget(session.connection)
            self.close(session, _REASON)

    def _noting(self, api: Api) -> Api:
        """A row of the table whose handler notes the group of a request, if it has one."""
        handler: Handler | None = None

        def handle(ctx: RequestContext, request: Any) -> None:
            nonlocal handler
            group = _group_of(api.key, request)
            if group:
                self.groups[ctx.session.connection] = group
            if handler is None:
                handler = _refuse_commit if api.key is ApiKey.OFFSET_COMMIT else api.handler
            handler(ctx, request)

        return api.with_handler(handle)

    def clients(self) -> list[tuple[int, str, str]]:
        """Connection, client id (else the software's name) and group ("": unknown) of each client.

        Not among them: connections without a request since, which may be those of nodes."""
        found = []
        for connection, session in self.by_connection.items():
            client = self.client_ids.get(connection) or session.client_software_name
            if client != _UNKNOWN and not is_internal(client):
                found.append((connection, client, self.groups.get(connection, "")))
        return found


def _refuse_commit(ctx: RequestContext, request: Any) -> None:
    """UNKNOWN_MEMBER_ID for each partition: final, while aiokafka repeats a commit for an unknown topic."""
    from kwire.apis.group_offsets import commit_response

    error = int(ErrorCode.UNKNOWN_MEMBER_ID)
    ctx.reply(commit_response(request.topics, defaultdict(lambda: error)))


def _client_id(frame: memoryview | bytes) -> str:
    try:
        return parse_request_header(frame).client_id or ""
    except MalformedMessage:
        return ""  # whoever handles the request says what is wrong with it


def _group_of(key: ApiKey, request: Any) -> str | None:
    """The group that a request is about, if it is one about a group."""
    group: str | None = None
    if key is ApiKey.FIND_COORDINATOR:
        group = request.coordinator_keys[0] if request.coordinator_keys else request.key
    elif key in _OF_MEMBERS:
        group = request.group_id
    return group


class _NoLogs:
    """The LogManager of a broker without partitions, as far as a ReplicaManager needs one."""

    def __init__(self, log_event: LogEvent) -> None:
        self.failure_listeners: list[Callable[..., None]] = []
        self.log_event = log_event


def _empty(services: Services) -> Services:
    """The components of a broker with the same id, address and settings, and nothing in it."""
    from kwire.coordinator.removed_groups import RemovedGroups
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.replica.fetch_session import FetchSessionCache
    from kwire.replication.replica.manager import ReplicaManager

    clock, timers, random, work = services.clock, services.timers, services.random, services.work
    metadata = MetadataCache()
    node_id = metadata.controller_id = services.node_id
    metadata.brokers = {i: own for i, own in services.metadata.brokers.items() if i == node_id}
    config, log_event = services.config, services.log_event
    logs: Any = _NoLogs(log_event)
    replicas = ReplicaManager(
        node_id=node_id,
        clock=clock,
        timers=timers,
        config=config,
        log_manager=logs,
        metadata=metadata,
    )
    groups: Any = RemovedGroups(random)
    return Services(
        node_id=node_id,
        cluster_id=services.cluster_id,
        clock=clock,
        timers=timers,
        work=work,
        random=random,
        config=config,
        metadata=metadata,
        replica_manager=replicas,
        log_manager=logs,
        controller=None,
        group_coordinator=groups,
        producer_ids=services.producer_ids,
        fetch_sessions=FetchSessionCache(clock, random, 0),
        api_ranges={key: services.api_ranges[key] for key in services.api_ranges if key in _SERVED},
        log_event=services.log_event,
    )
