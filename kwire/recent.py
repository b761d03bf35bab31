"""The last client requests at a broker, kept for the reports of failed tests.

Answers to Kafka's kafka-request.log. Left out: the requests of other nodes and of kwire's own
administration (they would be the majority), and the contents of requests.

Off by default: with `Sessions.recent` None a request costs one comparison. An entry holds the
response, which is summarised when the list is read; only Fetch and Heartbeat responses are
summarised immediately, so that records can be freed and repetitions counted.

Invariants: a client (id) has at most `KEPT` entries, and the API of which it has most gives way, so
that polls do not push its Joins out; the `MAX_CLIENTS` that sent requests last have entries.
"""

from __future__ import annotations

from collections import deque

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kwire.apis.context import RequestContext
    from kwire.protocol.language.schema import Message
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.metadata import MetadataCache
    from kwire.session import Session

KEPT = 20
MAX_CLIENTS = 16
ADMINISTRATION_CLIENT_ID = "kwire-admin"
CLOSED = "connection closed"
"""Stands in place of an API where the broker has closed a connection."""
_FETCH = int(ApiKey.FETCH)  # plain numbers: looked at for every request
_HEARTBEAT = int(ApiKey.HEARTBEAT)
_PARTITIONS_SHOWN = 4
_NODE_PREFIXES = ("broker-", "controller-")  # client ids of nodes: the prefix and their number
# Attributes of responses: lists of topics and the like, their names, lists of partitions, indexes.
_LISTS = ("responses", "topics", "results", "groups", "coordinators", "replica_election_results")
_NAMES = ("name", "topic", "topic_name", "topic_id", "group_id", "key", "resource_name")
_PARTITION_LISTS = ("partition_responses", "partitions", "partition_results", "partition_result")
_INDEXES = ("index", "partition_index", "partition_id", "partition")

# Positions in an entry.
_NUMBER, _AT_MS, _, _, _VERSION, _WHAT, _COUNT = range(7)

# (name of a topic, group or the like, or a topic id; partition or -1; error code)
_Outcomes = list[tuple[object, int, int]]


class RecentRequests:
    """The last requests of each client at one broker."""

    __slots__ = ("_clients", "_clock", "_kept", "_metadata", "_number")

    def __init__(self, clock: Clock, metadata: MetadataCache, kept: int = KEPT) -> None:
        self._clock = clock
        self._metadata = metadata
        self._kept = kept
        self._number = 0
        # Entries by client id and API, oldest first; the client of the last request is the last.
        self._clients: dict[str, dict[int, deque[list[Any]]]] = {}

    def record(self, context: RequestContext, response: Message | None) -> None:
        """Add an answered request. `response` None: it has no response (acks=0)."""
        client_id = context.client_id or ""
        api_key = context.api_key
        session: Session = context.session  # type: ignore[assignment]  # the protocol of handlers
        session.client_id = client_id
        session.last_api = api_key, context.api_version
        if is_internal(client_id):
            return
        what: object = response
        if api_key == _FETCH and response is not None:
            what = [
                (topic.topic or topic.topic_id, partition.partition_index, partition.error_code)
                for topic in response.responses  # type: ignore[attr-defined]  # a FetchResponse
                for partition in topic.partitions
            ] or [(None, -1, response.error_code)]  # type: ignore[attr-defined]
        elif api_key == _HEARTBEAT and response is not None:
            what = [(None, -1, response.error_code)]  # type: ignore[attr-defined]
        self._add(client_id, api_key, context.api_version, what)

    def record_close(self, session: Session, reason: str) -> None:
        """Add an entry for a connection that the broker closed."""
        self._add(session.client_software_name, -1, -1, reason)

    def _add(self, client_id: str, api_key: int, version: int, what: object) -> None:
        clients = self._clients
        of_client = clients.pop(client_id, None)
        if of_client is None:
            of_client = {}
            if len(clients) >= MAX_CLIENTS:
                del clients[next(iter(clients))]
        clients[client_id] = of_client
        entries = of_client.setdefault(api_key, deque())
        self._number += 1
        now_ms = self._clock.now_ms
        if entries and isinstance(what, list):
            last = entries[-1]
            if last[_WHAT] == what and last[_VERSION] == version:
                last[_NUMBER], last[_AT_MS] = self._number, now_ms
                last[_COUNT] += 1
                return
        if sum(map(len, of_client.values())) >= self._kept:
            max(of_client.values(), key=len).popleft()
        entries.append([self._number, now_ms, client_id, api_key, version, what, 1])

    @property
    def number(self) -> int:
        """How many requests were recorded so far."""
        return self._number

    def clear(self) -> None:
        """Drop all entries."""
        self._clients.clear()

    def list_requests(self, sessions: Iterable[Session]) -> list[list[Any]]:
        """[milliseconds ago, client id, API and version, outcome, count] of each entry, oldest first.

        Then the unanswered requests of `sessions`, with -1 milliseconds: their age is unknown."""
        kept = [
            entry
            for of_client in self._clients.values()
            for entries in of_client.values()
            for entry in entries
        ]
        kept.sort(key=lambda entry: int(entry[_NUMBER]))
        found = [
            [
                self._clock.now_ms - at_ms,
                client_id,
                api_text(api_key, version),
                self._text(api_key, what),
                count,
            ]
            for _, at_ms, client_id, api_key, version, what, count in kept
        ]
        for session in sessions:
            context = session.in_flight
            if context is not None and not is_internal(context.client_id or ""):
                name = api_text(context.api_key, context.api_version)
                found.append([-1, context.client_id or "", name, "not answered yet", 1])
        return found

    def _text(self, api_key: int, what: Any) -> str:
        if api_key < 0:
            return str(what)
        if what is None:
            return "wants no answer"
        parts: _Outcomes = what if isinstance(what, list) else _outcomes(what)
        by_outcome: dict[str, list[str]] = {}
        for name, index, code in parts:
            if isinstance(name, bytes):
                name = self._metadata.topic_name(name) or name.hex()
            named = by_outcome.setdefault(_error_name(code), [])
            if name is not None:
                named.append(f"{name}-{index}" if index >= 0 else str(name))
        texts = []
        for outcome, names in by_outcome.items():
            more = len(names) - _PARTITIONS_SHOWN
            text = " ".join(names[:_PARTITIONS_SHOWN]) + (f" and {more} more" if more > 0 else "")
            texts.append(f"{text}: {outcome}" if text else outcome)
        return "; ".join(texts)


def add_age(entries: list[list[Any]], milliseconds: int) -> list[list[Any]]:
    """The entries of a broker that exited `milliseconds` ago, with their ages counted from now."""
    return [
        [ago_ms + milliseconds, *what]
        if ago_ms >= 0
        else [milliseconds, *what[:-2], "not answered when the broker ended", 1]
        for ago_ms, *what in entries
    ]


def to_objects(of_brokers: dict[int, list[list[Any]]]) -> dict[str, Any]:
    """A JSON object of entries by broker. `milliseconds_ago` null: not answered yet; `count`: so
    many requests of this outcome in a row, of which the last was so long ago."""
    return {
        "requests": [
            {
                "broker": broker_id,
                "milliseconds_ago": ago_ms if ago_ms >= 0 else None,
                "client_id": client_id,
                "api": api,
                "outcome": text,
                "count": count,
            }
            for broker_id, entries in of_brokers.items()
            for ago_ms, client_id, api, text, count in entries
        ]
    }


def select(
    found: dict[str, Any], api: str | None, client_id: str | None, broker: int | None
) -> dict[str, Any]:
    """An object made by `to_objects` with the entries of this API (with or without its version),
    client and broker only, as far as they are given."""
    return {
        "requests": [
            each
            for each in found["requests"]
            if api in (None, each["api"], each["api"].rpartition(" v")[0])
            and client_id in (None, each["client_id"])
            and broker in (None, each["broker"])
        ]
    }


def from_objects(found: dict[str, Any]) -> list[list[Any]]:
    """The entries in an object made by `to_objects`, of all its brokers."""
    return [
        [
            -1 if each["milliseconds_ago"] is None else each["milliseconds_ago"],
            each["client_id"],
            each["api"],
            each["outcome"],
            each.get("count", 1),
        ]
        for each in found["requests"]
    ]


def format_requests(of_brokers: dict[int, list[list[Any]]]) -> list[str]:
    """Lines of text for entries by broker: oldest first, unanswered last.

    Requests of one client and API with the same outcome, one after the other, are one line."""
    found: list[list[Any]] = []  # [milliseconds ago, broker, client, api, text, count]
    for broker_id, entries in of_brokers.items():
        lasts: dict[tuple[str, str], list[Any]] = {}  # by client and API
        for ago_ms, client, api, text, count in entries:
            last = lasts.get((client, api))
            if last is not None and last[4] == text and ago_ms >= 0:
                last[0] = ago_ms
                last[5] += count
            else:
                last = lasts[client, api] = [ago_ms, broker_id, client, api, text, count]
                found.append(last)
    found.sort(key=lambda entry: -entry[0])
    lines = []
    for ago_ms, broker_id, client, name, text, count in found:
        when = f"-{ago_ms / 1000:.3f} s" if ago_ms >= 0 else "now"
        times = f" ({count} times)" if count > 1 else ""
        lines.append(f"{when:>10}  broker {broker_id}  {client or '?'}  {name}  {text}{times}")
    return lines


def is_internal(client_id: str) -> bool:
    """Whether a client id is a node's, or that of kwire's own administration."""
    if client_id.startswith(_NODE_PREFIXES):
        return client_id.partition("-")[2].isdigit()
    return client_id == ADMINISTRATION_CLIENT_ID


def api_text(key: int, version: int) -> str:
    """The name and version of an API; -1: a connection that the broker closed."""
    return CLOSED if key < 0 else f"{ApiKey(key).api_name} v{version}"


def _error_name(code: int) -> str:
    try:
        return "ok" if code == 0 else ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _outcomes(response: Message) -> _Outcomes:
    """Names and error codes in a response; one entry without name if there is only a code."""
    outcomes: _Outcomes = []
    own = getattr(response, "error_code", 0)
    for attribute in _LISTS:
        for item in getattr(response, attribute, None) or ():
            _add_item(outcomes, item)
    if own or not outcomes:
        outcomes.insert(0, (None, -1, own))
    return outcomes


def _add_item(outcomes: _Outcomes, item: Any) -> None:
    name = None
    for attribute in _NAMES:
        name = getattr(item, attribute, None)
        if name:
            break
    error_code = getattr(item, "error_code", 0)
    before = len(outcomes)
    for attribute in _PARTITION_LISTS:
        for partition in getattr(item, attribute, None) or ():
            index = -1
            for index_attribute in _INDEXES:
                index = getattr(partition, index_attribute, -1)
                if index != -1:
                    break
            outcomes.append((name, index, getattr(partition, "error_code", 0)))
    if len(outcomes) == before or error_code:
        outcomes.append((name, -1, error_code))
