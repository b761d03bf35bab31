"""The last requests of clients at a broker, for people who look for what went wrong in a test.

Answers to what Kafka writes into kafka-request.log. Left out: the requests of other nodes and of kwire's own
administration (they would be most of them), and the requests' contents.

Switched on by `Sessions.recent`; a broker that nobody asked to has none and pays a comparison with None a request.
What is kept of a request is small: a response is looked through when somebody asks, but for Fetch's, whose records
must not be kept from being forgotten.
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
ADMINISTRATION_CLIENT_ID = "kwire-admin"
_FETCH = int(ApiKey.FETCH)  # a plain number: looked at for every request
_PARTITIONS_TOLD = 4
_NODE_PREFIXES = ("broker-", "controller-")  # client ids of nodes: the prefix and their number
# Where responses have their parts, and what those are named by.
_LISTS = ("responses", "topics", "results", "groups", "coordinators", "replica_election_results")
_NAMES = ("name", "topic", "topic_name", "topic_id", "group_id", "key", "resource_name")
_PARTITION_LISTS = ("partition_responses", "partitions", "partition_results", "partition_result")
_INDEXES = ("index", "partition_index", "partition_id", "partition")

_Told = list[tuple[object, int, int]]  # (topic's or other name or id, partition or -1, error code)


class RecentRequests:
    """The last requests of one broker, oldest first."""

    __slots__ = ("_clock", "_entries", "_metadata")

    def __init__(self, clock: Clock, metadata: MetadataCache, kept: int = KEPT) -> None:
        self._clock = clock
        self._metadata = metadata
        self._entries: deque[tuple[int, str | None, int, int, Any]] = deque(maxlen=kept)

    def answered(self, context: RequestContext, response: Message | None) -> None:
        """A request has its answer; None: it wants none (acks=0)."""
        client_id = context.client_id
        if client_id is not None and _is_ours(client_id):
            return
        api_key = context.api_key
        what: object = response
        if api_key == _FETCH and response is not None:
            what = [
                (topic.topic or topic.topic_id, partition.partition_index, partition.error_code)
                for topic in response.responses  # type: ignore[attr-defined]  # a FetchResponse
                for partition in topic.partitions
            ] or [(None, -1, response.error_code)]  # type: ignore[attr-defined]
        self._entries.append((self._clock.now_ms, client_id, api_key, context.api_version, what))

    def closed(self, session: Session, reason: str) -> None:
        """A connection was closed from this side."""
        self._entries.append((self._clock.now_ms, session.client_software_name, -1, -1, reason))

    def forget(self) -> None:
        """Begins anew."""
        self._entries.clear()

    def listed(self, sessions: Iterable[Session]) -> list[list[Any]]:
        """[milliseconds ago, client id, API and version, what of and what came of it], oldest first; then what waits.

        For the last ones, -1 milliseconds: how long they have waited is not known."""
        found = [
            [self._clock.now_ms - at_ms, client_id or "", _api(key, version), self._text(key, what)]
            for at_ms, client_id, key, version, what in self._entries
        ]
        for session in sessions:
            context = session.in_flight
            if context is not None and not _is_ours(context.client_id or ""):
                name = _api(context.api_key, context.api_version)
                found.append([-1, context.client_id or "", name, "not answered yet"])
        return found

    def _text(self, api_key: int, what: Any) -> str:
        if api_key < 0:
            return str(what)
        if what is None:
            return "wants no answer"
        parts: _Told = what if isinstance(what, list) else _parts(what)
        by_outcome: dict[str, list[str]] = {}
        for name, index, code in parts:
            if isinstance(name, bytes):
                name = self._metadata.topic_name(name) or name.hex()
            named = by_outcome.setdefault(_error_name(code), [])
            if name is not None:
                named.append(f"{name}-{index}" if index >= 0 else str(name))
        texts = []
        for outcome, names in by_outcome.items():
            more = len(names) - _PARTITIONS_TOLD
            text = " ".join(names[:_PARTITIONS_TOLD]) + (f" and {more} more" if more > 0 else "")
            texts.append(f"{text}: {outcome}" if text else outcome)
        return "; ".join(texts)


def aged(entries: list[list[Any]], milliseconds: int) -> list[list[Any]]:
    """What `listed` gave when the broker ended, so long ago."""
    return [
        [ago_ms + milliseconds, *what]
        if ago_ms >= 0
        else [milliseconds, *what[:-1], "not answered when the broker ended"]
        for ago_ms, *what in entries
    ]


def as_objects(of_brokers: dict[int, list[list[Any]]]) -> dict[str, Any]:
    """What `listed` has given, by broker, for JSON. `milliseconds_ago` null: it is not answered yet."""
    return {
        "requests": [
            {
                "broker": broker_id,
                "milliseconds_ago": ago_ms if ago_ms >= 0 else None,
                "client_id": client_id,
                "api": api,
                "outcome": text,
            }
            for broker_id, entries in of_brokers.items()
            for ago_ms, client_id, api, text in entries
        ]
    }


def from_objects(found: dict[str, Any]) -> list[list[Any]]:
    """What `listed` has given to `as_objects`, of all brokers in it."""
    return [
        [
            -1 if each["milliseconds_ago"] is None else each["milliseconds_ago"],
            each["client_id"],
            each["api"],
            each["outcome"],
        ]
        for each in found["requests"]
    ]


def told(of_brokers: dict[int, list[list[Any]]]) -> list[str]:
    """What `listed` has given, by broker, as lines of text: oldest first, what waits last, repetitions once."""
    found: list[list[Any]] = []  # [milliseconds ago, broker, client, api, text, how often]
    for broker_id, entries in of_brokers.items():
        last: list[Any] | None = None
        for ago_ms, *what in entries:
            if last is not None and last[2:5] == what and ago_ms >= 0:
                last[0] = ago_ms
                last[5] += 1
            else:
                last = [ago_ms, broker_id, *what, 1]
                found.append(last)
    found.sort(key=lambda entry: -entry[0])
    lines = []
    for ago_ms, broker_id, client, name, text, count in found:
        when = f"-{ago_ms / 1000:.3f} s" if ago_ms >= 0 else "now"
        times = f" ({count} times)" if count > 1 else ""
        lines.append(f"{when:>10}  broker {broker_id}  {client or '?'}  {name}  {text}{times}")
    return lines


def _is_ours(client_id: str) -> bool:
    if client_id.startswith(_NODE_PREFIXES):
        return client_id.partition("-")[2].isdigit()
    return client_id == ADMINISTRATION_CLIENT_ID


def _api(key: int, version: int) -> str:
    return "connection closed" if key < 0 else f"{ApiKey(key).api_name} v{version}"


def _error_name(code: int) -> str:
    try:
        return "ok" if code == 0 else ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _parts(response: Message) -> _Told:
    """Names and error codes of what a response is about; one without a name where it is about nothing in particular."""
    told: _Told = []
    own = getattr(response, "error_code", 0)
    for attribute in _LISTS:
        for item in getattr(response, attribute, None) or ():
            _add_item(told, item)
    if own or not told:
        told.insert(0, (None, -1, own))
    return told


def _add_item(told: _Told, item: Any) -> None:
    name = None
    for attribute in _NAMES:
        name = getattr(item, attribute, None)
        if name:
            break
    error_code = getattr(item, "error_code", 0)
    before = len(told)
    for attribute in _PARTITION_LISTS:
        for partition in getattr(item, attribute, None) or ():
            index = -1
            for index_attribute in _INDEXES:
                index = getattr(partition, index_attribute, -1)
                if index != -1:
                    break
            told.append((name, index, getattr(partition, "error_code", 0)))
    if len(told) == before or error_code:
        told.append((name, -1, error_code))
