"""What an administrator does meanwhile: reassignments, elections, topics, records, settings."""

from __future__ import annotations

from typing import Final

from kwire.protocol.api import ApiKey
from kwire.replication.core.metadata import BROKER_RESOURCE, INTERNAL_TOPICS, TOPIC_RESOURCE
from kwire.replication.core.types import MOVES_THROTTLE_KEY
from kwire.sim.compaction import is_compacted
from kwire.sim.faults.throttles import throttle
from kwire.sim.plan import LEADER_CHANGES

_PARTITIONS_MAX: Final = 4

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
    wanted = nemesis.random.sample(nemesis.simulation.broker_ids, len(replicas))
    target: list[int] | None = wanted
    if nemesis.random.random() < 0.2:
        target = None  # cancels an ongoing reassignment
    else:
        asked = nemesis.simulation.invariants.state.targets.setdefault((name, index), set())
        asked.add(tuple(wanted))
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
    if nemesis.random.random() < 0.3:
        throttle(nemesis, name)


def elect(nemesis: Nemesis) -> None:
    from kwire.protocol.schemas.topics import ElectLeadersRequest

    kind = 1 if nemesis.simulation.plan.unclean and nemesis.random.random() < 0.3 else 0
    nemesis.simulation.decisions.unclean_requested |= kind == 1
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
    if is_compacted(name):
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
    ghost = nemesis.simulation.invariants.ghost_of(partition)
    ghost.asked_to_delete = max(ghost.asked_to_delete, offset)
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
    if found is None or found[0] in INTERNAL_TOPICS:
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
    found = nemesis.some_topic()
    if found is not None:
        value = str(nemesis.random.randint(1, 2))
        _set_config(nemesis, found[0], "min.insync.replicas", value)


def _set_config(
    nemesis: Nemesis, name: str, key: str, value: str, kind: int = TOPIC_RESOURCE
) -> None:
    from kwire.protocol.schemas.configs import (
        IncrementalAlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResource,
    )

    config = IncrementalAlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    nemesis.simulation.report_fault(f"{name}: {key}={value}")
    nemesis.simulation.administrate(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)


def unclean_flag(nemesis: Nemesis) -> None:
    """Switch unclean.leader.election.enable of a topic: from then on, but not before, it counts."""
    found = nemesis.some_topic()
    if found is not None:
        value = nemesis.random.choice(("true", "false"))
        _set_config(nemesis, found[0], "unclean.leader.election.enable", value)


def create_partitions(nemesis: Nemesis) -> None:
    """Add a partition to a topic."""
    from kwire.protocol.schemas.topics import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )

    found = nemesis.some_topic()
    controller = nemesis.simulation.controller
    if found is None or controller is None or found[0] in INTERNAL_TOPICS:
        return
    count = len(controller.controller.state.topics[found[0]].partitions) + 1
    if count > _PARTITIONS_MAX:
        return
    replicas = nemesis.random.sample(nemesis.simulation.broker_ids, len(found[2]))
    topic = CreatePartitionsTopic(
        name=found[0], count=count, assignments=[CreatePartitionsAssignment(broker_ids=replicas)]
    )
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=2000, validate_only=False)
    nemesis.simulation.report_fault(f"{found[0]} gets partition {count - 1} on {replicas}")
    nemesis.simulation.administrate(ApiKey.CREATE_PARTITIONS, 3, request)


def log_dir_move(nemesis: Nemesis) -> None:
    """Move a replica to another log directory of its broker, where moves may be throttled."""
    from kwire.protocol.schemas.cluster import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirTopic,
    )

    simulation, random, node = nemesis.simulation, nemesis.random, nemesis.pick()
    if node is None or simulation.plan.log_dirs < 2:
        return
    hosted = list(simulation.broker(node.node_id).services.replica_manager.by_key)
    if hosted:
        name, index = random.choice(hosted)
        path = f"/disk-{random.randrange(simulation.plan.log_dirs)}"
        topic = AlterReplicaLogDirTopic(name=name, partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        simulation.report_fault(f"{node}: {name}-{index} moves to {path}")
        simulation.administrate(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request, node.node_id)
        if random.random() < 0.3:
            rate = str(random.choice((1000, 100_000, 10_000_000)))
            _set_config(nemesis, str(node.node_id), MOVES_THROTTLE_KEY, rate, BROKER_RESOURCE)
