"""What a cluster holds: the part of `kwire.aio.Cluster` that looks at groups, transactions, records and clients.

Groups, transactions and records go over Kafka's protocol (`kwire.client.groups`, …), so that they work with any
Kafka; connections and kept requests are known inside the brokers only (`kwire.control.node_api`). All of
that is imported at first use.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kwire import errors
from kwire.backends.options import check_name, check_number, known, kwire_errors, unknown_topic
from kwire.backends.waiting import check_seconds
from kwire.control.known import API, EVENT
from kwire.protocol.varint import INT64_MAX
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from kwire.backends.base import Backend, StartedBackend
    from kwire.backends.clock.clock import Clock
    from kwire.backends.views import BrokerState, Partition
    from kwire.backends.waiting import Observations
    from kwire.client.views import Client, Event, Group, Record, Request, Transaction

    Data = str | bytes | bytearray | memoryview
    Headers = Mapping[str, Data | None] | Iterable[tuple[str, Data | None]]

_POLL_SECONDS = 0.005


class Contents:
    """Groups, transactions, records, clients and kept requests of a cluster."""

    _backend: Backend
    _brokers: Mapping[int, BrokerState]
    """Those that were started here."""
    observations: Observations
    clock: Clock

    if TYPE_CHECKING:

        def _require_inside(self, what: str) -> StartedBackend: ...

        async def topics(self, *, internal: bool = False) -> dict[str, int]: ...

        async def partition(self, topic: str, partition: int) -> Partition: ...

    def client_config(self, kind: str, user: str | None = None) -> dict[str, Any]:
        """The configuration of a client of the brokers, that logs in as `user` (default: the first one) if it has to.
        `kind`: "java", "librdkafka" (confluent-kafka, too), "kafka-python" or "aiokafka"."""
        from kwire.security.options import client_config_in

        spec = getattr(self._backend, "spec", None)  # of a cluster that was started here
        values = {} if spec is None else spec.node.values
        try:
            return client_config_in(values, kind, self._backend.bootstrap_servers, user)
        except ValueError as error:
            raise errors.ConfigurationError(str(error)) from None

    async def groups(self) -> list[str]:
        """The ids of all groups. BrokerNotAvailableError while a broker is paused whose groups no other has
        taken over yet; it names those of the others."""
        from kwire.client.groups import list_groups

        admin = self._backend.admin
        with kwire_errors("groups"):
            return list(await admin.run(list_groups(admin, paused=self._paused())))

    def _paused(self) -> list[int]:
        return [each.id for each in self._brokers.values() if each.paused]

    async def group(self, group_id: str) -> Group:
        """A group: state, members, and for each partition the committed offset, the end and the lag.

        One that does not exist is Dead, without members, as for Kafka. `lag` is None, not 0, until a partition is
        assigned or has a committed offset."""
        from kwire.client.groups import find_group

        check_name("group", group_id)
        admin = self._backend.admin
        with kwire_errors(f"group {group_id[:100]}"):
            found = await admin.run(find_group(admin, group_id, self._paused()))
        self.observations.record_group(found)
        return found

    async def transactions(self) -> list[Transaction]:
        """All transactional ids: state, producer id and epoch, coordinator, start, time-out, and of an open transaction
        its partitions with the offsets that it holds. [] before any producer has had one.

        BrokerNotAvailableError while a broker is paused whose transactions no other has taken over yet."""
        from kwire.client.transactions import list_transactions

        admin = self._backend.admin
        with kwire_errors("transactions"):
            found = await admin.run(list_transactions(admin, paused=self._paused()))
        for each in found:
            self.observations.record_transaction(each)
        return found

    async def transaction(self, transactional_id: str) -> Transaction:
        """A transactional id, as `transactions` has it; one that does not exist is Dead."""
        from kwire.client.transactions import find_transaction

        check_name("transactional id", transactional_id)
        admin = self._backend.admin
        with kwire_errors(f"transaction {transactional_id[:100]}"):
            found = await admin.run(find_transaction(admin, transactional_id, self._paused()))
        self.observations.record_transaction(found)
        return found

    async def fence_producer(self, transactional_id: str) -> Transaction:
        """Fence the producer that has a transactional id, as another one with this id does that starts: its open
        transaction is aborted, and what it sends from then on refused. RequestError: there is no such id."""
        from kwire.client.transactions import fence_producer

        check_name("transactional id", transactional_id)
        admin = self._backend.admin
        with kwire_errors():
            return await admin.run(fence_producer(admin, transactional_id, self._paused()))

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
                if abs(number) > INT64_MAX:
                    raise errors.ConfigurationError(f"{what}: out of range")
                if number < 0:
                    raise errors.ConfigurationError(
                        f"{what}: expected a number from 0, not {number}"
                    )
        admin = self._backend.admin
        try:
            with kwire_errors(topic[:100]):
                return await admin.run(
                    read_records(admin, topic, partition, start=start, end=end, limit=limit)
                )
        except errors.UnknownTopicOrPartitionError as error:
            raise await self._explain(error, topic, partition) from None

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
        `timestamp`: milliseconds since 1970; None: now, by `clock`. RequestError (NOT_ENOUGH_REPLICAS, …)."""
        from kwire.client.records import produce

        check_name("topic", topic)
        for what, number in {"partition": partition, "timestamp": timestamp}.items():
            if number is not None:
                check_number(what, number)
                if abs(number) > INT64_MAX:
                    raise errors.ConfigurationError(f"{what}: out of range")
        if timestamp is None:
            timestamp = self.clock.moved_ms
        admin = self._backend.admin
        steps = produce(
            admin,
            topic,
            _data("value", value),
            _data("key", key),
            partition=partition,
            headers=_headers(headers),
            timestamp=timestamp,
        )
        try:
            with kwire_errors(topic[:100]):
                return await admin.run(steps)
        except errors.UnknownTopicOrPartitionError as error:
            raise await self._explain(error, topic, partition) from None

    async def _read_partition(self, topic: str, partition: int) -> Partition:
        try:
            return await self._backend.partition(topic, partition)
        except errors.UnknownTopicOrPartitionError as error:
            raise await self._explain(error, topic, partition) from None

    async def _explain(
        self, error: errors.UnknownTopicOrPartitionError, topic: str, partition: int | None
    ) -> errors.UnknownTopicOrPartitionError:
        """The error with a topic that may have been meant; as it is if the topics are not known, or if
        there is such a topic and partition after all."""
        with suppress(errors.KwireError):
            counts = await self._backend.topics()
            if topic not in counts:
                return unknown_topic(topic, counts, partition)
            if partition is not None and not 0 <= partition < counts[topic]:
                return unknown_topic(topic, counts, partition)
        return error

    async def events(
        self,
        name: str | None = None,
        *,
        topic: str | None = None,
        broker: int | None = None,
        since: int = 0,
    ) -> list[Event]:
        """The newest events of all nodes in the order of time, also of nodes that have ended, and what was asked of the
        cluster. `name`: LEADER_ELECTED, …; `topic`, `broker`: about these. `since`: with a number above this one.

        NotSupportedError from outside."""
        from kwire.backends.history import to_event
        from kwire.server.event_history import matching

        history = self._require_inside("events").events
        name = known("name", EVENT, name)
        await history.collect()
        return [to_event(each) for each in matching(history.objects(since), name, topic, broker)]

    async def wait_in_sync(self, topic: str | None = None, timeout: float = 5.0) -> None:
        """Wait until each partition of a topic, or of all topics, has a leader and all its replicas in the ISR.

        `timeout`: seconds. WaitTimeoutError names the partitions that are not in sync."""
        check_seconds("timeout", timeout)
        if topic is not None:
            check_name("topic", topic)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            late: list[str] = []
            try:
                counts = await self.topics(internal=topic is None)
                if topic is not None and topic not in counts:
                    raise unknown_topic(topic, counts)
                for name in counts if topic is None else [topic]:
                    for index in range(counts[name]):
                        state = await self.partition(name, index)
                        if state.leader == NO_LEADER or state.isr != set(state.replicas):
                            late.append(str(state))
            except errors.BrokerNotAvailableError as error:  # no controller, say
                late.append(str(error))
            if not late:
                return
            if loop.time() >= deadline:
                text = "\n".join(late)
                raise errors.WaitTimeoutError(f"waited {timeout:g} s for replicas in sync\n{text}")
            await asyncio.sleep(_POLL_SECONDS)

    async def requests(
        self, *, api: str | None = None, client_id: str | None = None, broker: int | None = None
    ) -> list[Request]:
        """The last requests of clients at the brokers, oldest first: of each client 20 at each broker, repetitions
        counted as one. `api` ("Fetch"), `client_id`, `broker`: of these only.

        NotSupportedError when they are not kept (`recent_requests`), and from outside."""
        from kwire.backends.requests import NOT_KEPT, to_requests

        inside = self._require_inside("kept requests")
        if not inside.requests.is_kept:
            raise errors.NotSupportedError(NOT_KEPT)
        api = known("api", API, api)
        found = to_requests(await inside.requests.by_broker())
        return [
            each
            for each in found
            if api in (None, each.api)
            and client_id in (None, each.client_id)
            and broker in (None, each.broker)
        ]

    async def status(self, node: int) -> dict[str, Any]:
        """The state of one broker or controller, as SIGUSR1 logs it: `counts` with the names of Kafka's metrics; of a
        broker `partitions`, `fetchers`, `failed`, `truncations`, with lags in records and milliseconds.

        ClusterStateError for another id; BrokerNotAvailableError when it is down; NotSupportedError from outside."""
        from kwire.backends.views import require_answering

        inside = self._require_inside("the state of a node")
        try:
            handle = inside.node(node)
        except KeyError:
            text = f"there is no node {node!r}; the brokers are {sorted(inside.handles)}"
            raise errors.ClusterStateError(text) from None
        require_answering(handle, "node")
        with kwire_errors():
            found = (await handle.ask("GET", "/v1/status"))["nodes"]
        of_node: dict[str, Any] = next(each["status"] for each in found if each["id"] == node)
        return of_node

    async def clients(self) -> list[Client]:
        """The open connections of clients, by broker; none of other nodes. NotSupportedError from outside."""
        from kwire.client.views import Client

        found = []
        for handle in self._require_inside("connections of clients").handles.values():
            if handle.running and not handle.paused:
                with kwire_errors():
                    of_broker = (await handle.ask("GET", "/v1/clients"))["clients"]
                found += [Client(**each) for each in of_broker]
        return found


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
        try:
            item[0].encode()
        except UnicodeEncodeError:
            text = f"headers: the name {item[0]!r} is not valid Unicode"
            raise errors.ConfigurationError(text) from None
        found.append((item[0], _data(f"header {item[0]}", item[1])))
    return found
