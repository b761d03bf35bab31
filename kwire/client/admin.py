"""Administration over the wire, for `kwire.Cluster`: topics, elections, offsets, asked of any Kafka from 2.8 on.

Answers to org.apache.kafka.clients.admin.KafkaAdminClient, as far as a test needs it: one connection a question, no
metadata kept. Requests for the controller go to the broker that Metadata names as such, which is the controller or
forwards to it. What a replica has is asked of that very broker, as a debugging consumer (replica id -2) does.
"""

from __future__ import annotations

import asyncio

from kwire.client.connection import ask
from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from kwire.protocol.language.schema import Message

    Address = tuple[str, int]

CONSUMER, DEBUGGING_CONSUMER = -1, -2
EARLIEST, LATEST = -2, -1
PREFERRED, UNCLEAN = 0, 1
_METADATA, _CREATE_TOPICS, _DELETE_TOPICS = 12, 7, 6
_LIST_OFFSETS, _ELECT_LEADERS, _REASSIGN, _ALTER_CONFIGS = 5, 2, 0, 1
_BROKER_RESOURCE = 4
_PAUSE_SECONDS = 0.005
_CONNECTION_SECONDS = 10.0
REQUEST_SECONDS = 20.0


class NoBrokerError(Exception):
    """Nobody answers; the text says who was asked."""


class Admin:
    """Requests to the brokers of a cluster. KafkaError for what is refused, NoBrokerError when nobody answers."""

    def __init__(self, addresses: Callable[[], Sequence[Address]]) -> None:
        """`addresses`: where to ask, best first; called for each question."""
        self._addresses = addresses

    async def ask_any(self, version: int, request: Message, seconds: float) -> Any:
        """The answer of the first broker that gives one."""
        reasons = []
        for host, port in self._addresses():
            try:
                return await ask(host, port, version, request, seconds)
            except (OSError, EOFError, TimeoutError, MalformedMessage) as error:
                reasons.append(f"{host}:{port}: {str(error) or 'no answer'}")
        raise NoBrokerError("no broker answers: " + ("; ".join(reasons) or "none runs"))

    async def ask_at(self, address: Address, version: int, request: Message) -> Any:
        """The answer of one broker."""
        host, port = address
        try:
            return await ask(host, port, version, request, _CONNECTION_SECONDS)
        except (OSError, EOFError, TimeoutError, MalformedMessage) as error:
            raise NoBrokerError(f"{host}:{port}: {str(error) or 'no answer'}") from None

    async def metadata(self, topics: Sequence[str] | None = ()) -> Any:
        """Metadata of brokers and of these topics; None: of all."""
        from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic

        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        return await self.ask_any(_METADATA, request, _CONNECTION_SECONDS)

    async def _ask_controller(self, version: int, request: Message, seconds: float) -> Any:
        found = await self.metadata()
        for broker in found.brokers:
            if broker.node_id == found.controller_id:
                with_slack = seconds + _CONNECTION_SECONDS
                try:
                    return await ask(broker.host, broker.port, version, request, with_slack)
                except (OSError, EOFError, TimeoutError):
                    break  # it has just gone: whoever else there is forwards
        return await self.ask_any(version, request, seconds + _CONNECTION_SECONDS)

    # -- topics --------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        assignment: Sequence[Sequence[int]] | None,
        seconds: float,
    ) -> None:
        """CreateTopics; returns when all partitions have leaders, as a broker tells it."""
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
        (result,) = (await self._ask_controller(_CREATE_TOPICS, request, seconds)).topics
        _check(result.error_code, result.error_message)
        await self._until(lambda: self._is_led(name), seconds, f"{name} to have leaders")

    async def _is_led(self, name: str) -> bool:
        (topic,) = (await self.metadata([name])).topics
        return not topic.error_code and all(p.leader_id >= 0 for p in topic.partitions)

    async def delete_topics(self, names: Sequence[str], seconds: float) -> None:
        """DeleteTopics; returns when a broker knows none of them any more."""
        from kwire.protocol.schemas.topics import DeleteTopicsRequest, DeleteTopicState

        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names], timeout_ms=int(seconds * 1000)
        )
        for result in (await self._ask_controller(_DELETE_TOPICS, request, seconds)).responses:
            _check(result.error_code, result.error_message or f"topic {result.name}")
        await self._until(lambda: self._are_gone(names), seconds, f"{', '.join(names)} to go")

    async def _are_gone(self, names: Sequence[str]) -> bool:
        found = (await self.metadata(names)).topics
        return all(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in found)

    async def _until(self, condition: Callable[[], Any], seconds: float, what: str) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not await condition():
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"waited {seconds:g} s for {what}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def reset_broker_configs(self, brokers: Mapping[str, Address]) -> None:
        """Takes all dynamic configurations from brokers, each asked where it is; "" stands for those of all."""
        from kwire.protocol.schemas.configs import AlterConfigsRequest, AlterConfigsResource

        for name, address in brokers.items():
            resource = AlterConfigsResource(resource_type=_BROKER_RESOURCE, resource_name=name)
            request = AlterConfigsRequest(resources=[resource])
            for result in (await self.ask_at(address, _ALTER_CONFIGS, request)).responses:
                _check(result.error_code, result.error_message)

    # -- partitions ----------------------------------------------------------------------------------------------

    async def offset(
        self, address: Address, topic: str, index: int, timestamp: int, replica_id: int
    ) -> int:
        """ListOffsets of one partition at one broker."""
        from kwire.protocol.schemas.offsets import (
            ListOffsetsPartition,
            ListOffsetsRequest,
            ListOffsetsTopic,
        )

        asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
        )
        response = await self.ask_at(address, _LIST_OFFSETS, request)
        found = response.topics[0].partitions[0]
        _check(found.error_code, f"the offset of {topic}-{index}")
        return int(found.offset)

    async def elect(self, topic: str, index: int, kind: int, seconds: float) -> None:
        """ElectLeaders of one partition, PREFERRED or UNCLEAN; no error when it was not needed."""
        from kwire.protocol.schemas.topics import ElectLeadersRequest, TopicPartitions

        request = ElectLeadersRequest(
            election_type=kind,
            topic_partitions=[TopicPartitions(topic=topic, partitions=[index])],
            timeout_ms=int(seconds * 1000),
        )
        response = await self._ask_controller(_ELECT_LEADERS, request, seconds)
        _check(response.error_code, "the election")
        for of_topic in response.replica_election_results:
            for result in of_topic.partition_result:
                if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                    _check(result.error_code, result.error_message)

    async def reassign(self, topic: str, index: int, replicas: list[int], seconds: float) -> None:
        """AlterPartitionReassignments of one partition."""
        from kwire.protocol.schemas.topics import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )

        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[partition])],
            timeout_ms=int(seconds * 1000),
        )
        response = await self._ask_controller(_REASSIGN, request, seconds)
        _check(response.error_code, response.error_message)
        for of_topic in response.responses:
            for result in of_topic.partitions:
                _check(result.error_code, result.error_message)


def _check(code: int, message: str | None) -> None:
    if code:
        try:
            error = ErrorCode(code)
        except ValueError:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"error {code}: {message}") from None
        raise KafkaError(error, message or error.name)
