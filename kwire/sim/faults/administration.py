"""What an administrator does meanwhile: reassignments, elections, topics, records, settings."""

from __future__ import annotations

from kwire.protocol.api import ApiKey
from kwire.sim.compaction import PREFIX
from kwire.sim.plan import LEADER_CHANGES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.faults.nemesis import Nemesis


def reassign(nemesis: Nemesis) -> None:
    from kwire.protocol.schemas.topics import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    found = nemesis.some_topic()
    if found is None:
        return
    name, index, replicas = found
    target: list[int] | None = nemesis.random.sample(nemesis.simulation.broker_ids, len(replicas))
    if nemesis.random.random() < 0.2:
        target = None  # cancels an ongoing reassignment
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=2000,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[ReassignablePartition(partition_index=index, replicas=target)],
            )
        ],
    )
    nemesis.simulation.report_fault(f"reassign {name}-{index} to {target}")
    nemesis.simulation.administrate(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)


def elect(nemesis: Nemesis) -> None:
    from kwire.protocol.schemas.topics import ElectLeadersRequest

    kind = 1 if nemesis.simulation.plan.unclean and nemesis.random.random() < 0.3 else 0
    request = ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=2000)
    nemesis.simulation.report_fault(f"elect leaders ({'unclean' if kind else 'preferred'})")
    nemesis.simulation.administrate(ApiKey.ELECT_LEADERS, 2, request)


def delete_records(nemesis: Nemesis) -> None:
    from kwire.protocol.schemas.topics import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    found = nemesis.some_topic()
    controller = nemesis.simulation.controller
    if found is None or controller is None:
        return
    name, index, _ = found
    if name.startswith(PREFIX):
        return  # Kafka refuses it
    leader = controller.controller.state.topics[name].partitions[index].leader
    if leader < 0 or not nemesis.simulation.nodes[leader].up:
        return
    partition = nemesis.simulation.broker(leader).services.replica_manager.by_key.get((name, index))
    if partition is None:
        return
    offset = nemesis.random.randint(0, partition.log.high_watermark)
    plan = nemesis.simulation.plan
    if plan.unclean or any(plan.weights[kind] for kind in LEADER_CHANGES):
        # With a log start within a batch, a diverged follower may be truncated within a batch,
        # too, and never catch up again, because the leader's batch begins below the follower's
        # end (§3.5, S34), in Kafka as here (compat_tests/divergence.py). So round to a batch.
        offset = _boundary(nemesis, name, index, offset)
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name,
                partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)],
            )
        ],
        timeout_ms=500,
    )
    nemesis.simulation.report_fault(f"delete records of {name}-{index} up to {offset}")
    nemesis.simulation.administrate(ApiKey.DELETE_RECORDS, 2, request, leader)


def _boundary(nemesis: Nemesis, name: str, index: int, offset: int) -> int:
    """The first offset of the committed batch that holds `offset`."""
    controller = nemesis.simulation.controller
    assert controller is not None
    topic_id = controller.controller.state.topics[name].topic_id
    entry = nemesis.simulation.invariants.ghost(name, topic_id, index).committed.covering(offset)
    return offset if entry is None else entry.base


def create_topic(nemesis: Nemesis) -> None:
    simulation = nemesis.simulation
    nemesis.extra_topics = (nemesis.extra_topics + 1) % 3
    topic = simulation.plan.topic(nemesis.random, f"extra-{nemesis.extra_topics}")
    simulation.report_fault(f"create {topic.name}")
    simulation.create_topic(topic)


def delete_topic(nemesis: Nemesis) -> None:
    from kwire.protocol.schemas.topics import DeleteTopicsRequest, DeleteTopicState

    found = nemesis.some_topic()
    if found is None:
        return
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=found[0])], timeout_ms=2000)
    if nemesis.random.random() < 0.4:
        # The broker comes back with a replica of a topic that was deleted meanwhile.
        node = nemesis.simulation.nodes[nemesis.random.choice(found[2])]
        if node.up:
            nemesis.down(node, "is killed")
    nemesis.simulation.report_fault(f"delete {found[0]}")
    nemesis.simulation.administrate(ApiKey.DELETE_TOPICS, 6, request)
    if not found[0].startswith("extra"):
        again = nemesis.simulation.plan.topic(nemesis.random, found[0])
        nemesis.simulation.schedule.after(
            nemesis.outage_us(), nemesis.simulation.create_topic, again
        )


def configure(nemesis: Nemesis) -> None:
    from kwire.protocol.schemas.configs import (
        IncrementalAlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResource,
    )

    found = nemesis.some_topic()
    if found is None:
        return
    value = str(nemesis.random.randint(1, 2))
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=2,
                resource_name=found[0],
                configs=[
                    IncrementalAlterableConfig(
                        name="min.insync.replicas", config_operation=0, value=value
                    )
                ],
            )
        ]
    )
    nemesis.simulation.report_fault(f"{found[0]}: min.insync.replicas={value}")
    nemesis.simulation.administrate(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
