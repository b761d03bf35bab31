"""Administration of any Kafka over the wire: sequences of requests, written once for both faces.

Answers to org.apache.kafka.clients.admin.KafkaAdminClient, as far as tests and the image's tools
need it. Every method of `Admin` is a generator: it yields `Ask`, for which it is sent the response
or a NoResponseError, or `Pause`. `run` of `streams.Client` and of `blocking.Client` moves it on and
returns its result; a test may do so by hand.

No metadata is kept. Requests for the controller go to the broker that Metadata names as such, which
is the controller or forwards to it. A replica's own offsets come from that very broker, asked as a
debugging consumer (replica id -2).
"""

from __future__ import annotations

from time import monotonic

from kwire.client.connection import NoResponseError, check
from kwire.protocol.api import key_of
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from kwire.client.connection import Address
    from kwire.protocol.language.schema import Message

    T = TypeVar("T")
    Steps = Generator["Ask | Pause", Any, T]

CONSUMER, DEBUGGING_CONSUMER = -1, -2
EARLIEST, LATEST = -2, -1
PREFERRED, UNCLEAN = 0, 1
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
REQUEST_SECONDS = 20.0
"""How long the controller may take for what it is asked for."""
CONNECTION_SECONDS = 10.0
"""How long a broker may take to be reached and to answer what it need not wait for."""
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1
_PAUSE_SECONDS = 0.005
_LONG_PAUSE_SECONDS = 0.05  # while a topic or a coordinator comes into being


class NoBrokerError(Exception):
    """No broker answers. `api`: what was asked for; `reasons`: why not, broker by broker."""

    def __init__(self, text: str, api: str, reasons: Sequence[NoResponseError]) -> None:
        super().__init__(text)
        self.api = api
        self.reasons = reasons


class UnreachedBrokerError(NoBrokerError):
    """The one broker that could answer does not."""


class Ask:
    """A step: send a request to a broker. The response comes back, or a NoResponseError."""

    __slots__ = ("address", "request", "seconds")

    def __init__(self, address: Address, request: Message, seconds: float) -> None:
        self.address = address
        self.request = request
        self.seconds = seconds


class Pause:
    """A step: let time go by."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Admin:
    """Operations on a cluster. KafkaError: refused; NoBrokerError: no broker answers."""

    def __init__(
        self, addresses: Callable[[], Sequence[Address]], seconds: float = CONNECTION_SECONDS
    ) -> None:
        """`addresses`: where to ask, best first; called for each request. `seconds`: to answer."""
        self._addresses = addresses
        self._seconds = seconds
        self.turns: dict[str, int] = {}
        """How many records without a key were written to each topic (`records.produce`)."""

    def ask_any(self, request: Message, seconds: float | None = None) -> Steps[Any]:
        """The response of the first broker that gives one."""
        reasons, texts = [], []
        for host, port in self._addresses():
            try:
                return (yield from _ask((host, port), request, seconds or self._seconds))
            except NoResponseError as error:
                reasons.append(error)
                texts.append(f"{host}:{port}: {error}")
        raise NoBrokerError(
            "no broker answers: " + ("; ".join(texts) or "none runs"),
            key_of(request).api_name,
            reasons,
        )

    def ask_at(self, address: Address, request: Message, seconds: float = 0.0) -> Steps[Any]:
        """The response of one broker, which may take `seconds` for it beside the usual."""
        try:
            return (yield from _ask(address, request, seconds + self._seconds))
        except NoResponseError as error:
            host, port = address
            text = f"{host}:{port}: {error}"
            raise UnreachedBrokerError(text, key_of(request).api_name, [error]) from None

    def ask_controller(self, request: Message, seconds: float) -> Steps[Any]:
        """The controller's response to what it may take `seconds` for."""
        with_slack = seconds + self._seconds
        found = yield from self.metadata()
        address = self.brokers_in(found).get(found.controller_id)
        if address is not None:
            try:
                return (yield from _ask(address, request, with_slack))
            except NoResponseError:
                pass  # it has just ended: any other broker forwards
        return (yield from self.ask_any(request, with_slack))

    def metadata(self, topics: Iterable[str] | None = (), *, create: bool = False) -> Steps[Any]:
        """Metadata of brokers and of topics; None: of all. `create`: topics that do not exist."""
        from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic

        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=create)
        return (yield from self.ask_any(request))

    def brokers_in(self, metadata: Any) -> dict[int, Address]:
        """Where to ask the brokers of a Metadata response, by id.

        A single broker is asked where it was found: what it advertises may be for clients
        elsewhere, as that of a container is."""
        brokers, addresses = metadata.brokers, self._addresses()
        if len(brokers) == 1 == len(addresses):
            return {brokers[0].node_id: addresses[0]}
        return {broker.node_id: (broker.host, broker.port) for broker in brokers}

    # --- topics

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        assignment: Sequence[Sequence[int]] | None,
        seconds: float,
    ) -> Steps[None]:
        """CreateTopics; return when all partitions have leaders in a broker's metadata."""
        from kwire.protocol.schemas.topics import (
            CreatableReplicaAssignment,
            CreatableTopic,
            CreatableTopicConfig,
            CreateTopicsRequest,
        )

        topic = CreatableTopic(
            name=name,
            num_partitions=partitions if assignment is None else -1,
            replication_factor=replication_factor if assignment is None else -1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(assignment or ())
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(seconds * 1000))
        (result,) = (yield from self.ask_controller(request, seconds)).topics
        check(result.error_code, result.error_message)
        yield from _until(lambda: self._is_led(name), seconds, f"{name} to have leaders")

    def _is_led(self, name: str) -> Steps[bool]:
        (topic,) = (yield from self.metadata([name])).topics
        return not topic.error_code and all(p.leader_id >= 0 for p in topic.partitions)

    def delete_topics(self, names: Sequence[str], seconds: float) -> Steps[None]:
        """DeleteTopics; return when a broker's metadata has none of them."""
        from kwire.protocol.schemas.topics import DeleteTopicsRequest

        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=int(seconds * 1000))
        for result in (yield from self.ask_controller(request, seconds)).responses:
            check(result.error_code, result.error_message or f"topic {result.name}")
        yield from _until(lambda: self._are_gone(names), seconds, f"{', '.join(names)} to go")

    def delete_these_topics(self, names: Sequence[str], seconds: float) -> Steps[None]:
        """Delete the topics that now have these names; return when a broker's metadata has none of
        them. Topics that clients make again under these names are others, with ids of their own."""
        from kwire.protocol.schemas.topics import DeleteTopicsRequest

        found = {topic.name: topic.topic_id for topic in (yield from self.metadata(names)).topics}
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=int(seconds * 1000))
        for result in (yield from self.ask_controller(request, seconds)).responses:
            if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # gone: good
                check(result.error_code, result.error_message or f"topic {result.name}")
        yield from _until(lambda: self._have_other_ids(found), seconds, f"{', '.join(names)} to go")

    def _have_other_ids(self, ids: Mapping[str, bytes]) -> Steps[bool]:
        """Whether no topic of these names has its id any more; before topic ids: none is there."""
        found = (yield from self.metadata(list(ids))).topics
        return all(
            topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            or topic.topic_id != ids[topic.name]
            for topic in found
        )

    def _are_gone(self, names: Sequence[str]) -> Steps[bool]:
        found = (yield from self.metadata(names)).topics
        return all(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in found)

    def reset_broker_configs(self, brokers: Mapping[str, Address]) -> Steps[None]:
        """Delete the dynamic configurations of brokers, at these addresses; "": those for all."""
        from kwire.protocol.schemas.configs import AlterConfigsRequest, AlterConfigsResource

        for name, address in brokers.items():
            resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=name)
            request = AlterConfigsRequest(resources=[resource])
            for result in (yield from self.ask_at(address, request)).responses:
                check(result.error_code, result.error_message)

    # --- partitions

    def leaders(
        self, topic: str, seconds: float, *, create: bool = False
    ) -> Steps[dict[int, Address]]:
        """Where the leader of each partition is; return when all partitions have one. `create`: the
        topic, too."""
        deadline = monotonic() + seconds
        while True:
            metadata = yield from self.metadata([topic], create=create)
            (found,) = metadata.topics
            if not found.error_code and all(p.leader_id >= 0 for p in found.partitions):
                break
            may_come = found.error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE) or (
                create and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if not may_come or monotonic() > deadline:
                check(found.error_code or ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic}")
            yield Pause(_LONG_PAUSE_SECONDS)
        brokers = self.brokers_in(metadata)
        return {p.partition_index: brokers[p.leader_id] for p in found.partitions}

    def offset(
        self,
        address: Address,
        topic: str,
        index: int,
        timestamp: int,
        replica_id: int = CONSUMER,
    ) -> Steps[int]:
        """ListOffsets of a partition at a broker. `timestamp`: milliseconds, EARLIEST or LATEST."""
        from kwire.protocol.schemas.offsets import (
            ListOffsetsPartition,
            ListOffsetsRequest,
            ListOffsetsTopic,
        )

        wanted = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        found = (yield from self.ask_at(address, request)).topics[0].partitions[0]
        check(found.error_code, f"the offset of {topic}-{index}")
        return int(found.offset)

    def elect(self, topic: str, index: int, kind: int, seconds: float) -> Steps[None]:
        """ElectLeaders of one partition, PREFERRED or UNCLEAN; no error when it was not needed."""
        from kwire.client.maintenance import elect_leaders

        outcomes = yield from elect_leaders(self, [(topic, index)], kind, seconds)
        for error in outcomes.values():
            if error is not None and error.code != ErrorCode.ELECTION_NOT_NEEDED:
                raise error

    def reassign(
        self, topic: str, index: int, replicas: list[int] | None, seconds: float
    ) -> Steps[None]:
        """AlterPartitionReassignments of one partition; None cancels."""
        from kwire.client.maintenance import reassign

        outcomes = yield from reassign(self, {(topic, index): replicas}, seconds)
        for error in outcomes.values():
            if error is not None:
                raise error

    # --- groups

    def coordinator(self, group: str, seconds: float) -> Steps[Address]:
        """Where a group's coordinator is; return when there is one."""
        from kwire.protocol.schemas.groups import FindCoordinatorRequest

        deadline = monotonic() + seconds
        while True:
            request = FindCoordinatorRequest(key_type=GROUP_COORDINATOR, key=group)
            found = yield from self.ask_any(request)
            if found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                check(found.error_code, found.error_message)
                brokers = self.brokers_in((yield from self.metadata()))
                if found.node_id in brokers:
                    return brokers[found.node_id]
            if monotonic() > deadline:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group}")
            yield Pause(_LONG_PAUSE_SECONDS)


def _ask(address: Address, request: Message, seconds: float) -> Steps[Any]:
    outcome = yield Ask(address, request, seconds)
    if isinstance(outcome, NoResponseError):
        raise outcome
    return outcome


def _until(condition: Callable[[], Steps[bool]], seconds: float, what: str) -> Steps[None]:
    deadline = monotonic() + seconds
    while not (yield from condition()):
        if monotonic() > deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"waited {seconds:g} s for {what}")
        yield Pause(_PAUSE_SECONDS)
