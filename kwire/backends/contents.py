"""What a cluster holds: the part of `kwire.aio.Cluster` that looks at groups and records and writes some.

Everything here goes over Kafka's protocol (`kwire.client.groups`, `records`), so that it works with any
Kafka, and is imported at first use.
"""

from __future__ import annotations

from kwire import errors
from kwire.backends.options import check_name, check_number, kwire_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kwire.backends.base import Backend, StartedBackend
    from kwire.client.views import Event, Group, Record

    Data = str | bytes | bytearray | memoryview
    Headers = Mapping[str, Data | None] | Iterable[tuple[str, Data | None]]


class Contents:
    """Groups and records of a cluster."""

    _backend: Backend

    if TYPE_CHECKING:

        def _require_inside(self, what: str) -> StartedBackend: ...

    async def groups(self) -> list[str]:
        """The ids of all groups."""
        from kwire.client.groups import list_groups

        admin = self._backend.admin
        with kwire_errors("groups"):
            return list(await admin.run(list_groups(admin)))

    async def group(self, group_id: str) -> Group:
        """A group: state, members, and for each partition the committed offset, the end and the lag.

        One that does not exist is Dead, without members, as for Kafka."""
        from kwire.client.groups import describe_group

        check_name("group", group_id)
        admin = self._backend.admin
        with kwire_errors(f"group {group_id[:100]}"):
            return await admin.run(describe_group(admin, group_id))

    async def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """The records of a topic, or of one partition, by partition and offset: those that are there
        now, without a group and without waiting for more.

        `start`, `end`: of each partition, from this offset to before that one. `limit`: at most so
        many, in all. UnknownTopicOrPartitionError."""
        from kwire.client.records import read_records

        check_name("topic", topic)
        numbers = {"partition": partition, "start": start, "end": end, "limit": limit}
        for what, number in numbers.items():
            if number is not None:
                check_number(what, number)
                if number < 0:
                    raise errors.ConfigurationError(
                        f"{what}: expected a number from 0, not {number}"
                    )
        admin = self._backend.admin
        with kwire_errors(topic[:100]):
            return await admin.run(
                read_records(admin, topic, partition, start=start, end=end, limit=limit)
            )

    async def produce(
        self,
        topic: str,
        value: Data | None,
        key: Data | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Record:
        """Write a record; return it with its offset once all replicas in the ISR have it. A str is encoded
        as UTF-8, the value None is a tombstone.

        `partition`: None: by the key as Java's producer does, without a key one after the other.
        `timestamp`: milliseconds since 1970; None: now. RequestError (NOT_ENOUGH_REPLICAS, …)."""
        from kwire.client.records import produce

        check_name("topic", topic)
        for what, number in {"partition": partition, "timestamp": timestamp}.items():
            if number is not None:
                check_number(what, number)
        admin = self._backend.admin
        with kwire_errors(topic[:100]):
            return await admin.run(
                produce(
                    admin,
                    topic,
                    _data("value", value),
                    _data("key", key),
                    partition=partition,
                    headers=_headers(headers),
                    timestamp=timestamp,
                )
            )

    async def events(
        self,
        name: str | None = None,
        *,
        topic: str | None = None,
        broker: int | None = None,
        after: int = 0,
    ) -> list[Event]:
        """The newest events of all nodes in the order of time, also of nodes that have ended, and what was asked of the
        cluster. `name`: LEADER_ELECTED, …; `topic`, `broker`: about these. `after`: with a number above this one.

        NotSupportedError from outside."""
        from kwire.backends.history import to_event
        from kwire.server.event_history import matching

        history = self._require_inside("events").events
        await history.collect()
        return [to_event(each) for each in matching(history.objects(after), name, topic, broker)]


def _data(what: str, given: object) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode("utf-8", "surrogateescape")
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise errors.ConfigurationError(f"{what}: expected a text or bytes, not {given!r}")


def _headers(given: Headers) -> list[tuple[str, bytes | None]]:
    from collections.abc import Mapping

    found = []
    for item in given.items() if isinstance(given, Mapping) else given:
        if not isinstance(item, list | tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise errors.ConfigurationError(f"headers: expected (name, value), not {item!r}")
        found.append((item[0], _data(f"header {item[0]}", item[1])))
    return found
